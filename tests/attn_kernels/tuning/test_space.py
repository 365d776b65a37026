"""The declared config space, the rules that drop configs from it, and vLLM's fixed choice."""

import re
from collections import Counter

import pytest
import torch
from treegen_builders import REPOSITORY

from attn_kernels import Config
from attn_kernels.choose.mixed import WITHOUT_KERNEL
from attn_kernels.kernels.arguments import without_tma
from attn_kernels.kernels.registry import VARIANTS, check_config
from attn_kernels.measure.batches import HeadLayout, chunked_prefill, decode, mixed, prefill, speculative
from attn_kernels.tuning.kernels import MIXED
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.space import rules
from attn_kernels.tuning.space.rules import Gpu, reason_against, reason_of_model, shared_bytes
from attn_kernels.tuning.space.space import declared, declared_mixed, find_possible, gpu_of

TUNED = {
    name
    for name, variant in VARIANTS.items()
    if variant.grids and not variant.mixed and not variant.batch_invariant
}
ON_HOPPER = {name for name in TUNED if all(all(grid.D) for grid in VARIANTS[name].grids)}
H100 = Gpu("sm_90", "nvidia", 232448, 132)
A100 = Gpu("sm_80", "nvidia", 166912, 108)
MI300X = Gpu("gfx942", "amd", 65536, 304)
CPU = Gpu("cpu", "cpu", 0, 3)
FP8 = torch.float8_e4m3fn
LAYOUTS = ("32/8/128", "8/1/128", "28/4/128", "32/32/128", "32/8/64", "16/8/256", "32/1/128", "64/1/128")
LAYOUTS += ("128/1/128", "16/2/512")
QUICK = SETS["quick"](0)


def model_of(layout="32/8/128", block_size=16, dtype=torch.bfloat16, **other):
    return HeadLayout.parse(layout).model(block_size, dtype, **other)


def reason_of(name, gpu=H100, **where):
    """Why a config is dropped for a model; None if it is not."""
    return reason_of_model(Config.parse(name), model_of(**where), gpu)


def kept_at(model, gpu, configs):
    return tuple(config for config in configs if reason_of_model(config, model, gpu) is None)


@pytest.mark.parametrize("vendor", ["nvidia", "amd", "cpu"])
def test_every_declared_config_is_possible_and_declared_once(vendor):
    configs = declared(vendor)
    assert not [config for config, count in Counter(configs).items() if count > 1]
    assert {config.variant for config in configs} == TUNED - (ON_HOPPER if vendor == "amd" else set())
    for config in configs:
        check_config(config)


def test_the_space_is_as_large_as_docs_say():
    counts = Counter(config.variant for config in declared("nvidia"))
    in_docs = re.findall(
        r"([0-9]+)\s+`(\w+)`", (REPOSITORY / "docs/space.md").read_text().split("## At a shape")[0]
    )
    assert counts == {variant: int(count) for count, variant in in_docs}


def test_every_declared_config_is_of_use_at_some_shape():
    useful = {config for layout in LAYOUTS for config in kept_at(model_of(layout), H100, declared("nvidia"))}
    assert not set(declared("nvidia")) - useful


@pytest.mark.parametrize("gpu", [H100, A100, MI300X, CPU])
@pytest.mark.parametrize("cache_dtype", [None, FP8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_shape_keeps_configs_of_every_variant(layout, cache_dtype, gpu):
    kept = kept_at(model_of(layout, cache_dtype=cache_dtype), gpu, declared(gpu.vendor))
    if "256" not in layout or gpu is not MI300X:
        assert TUNED - ON_HOPPER <= {config.variant for config in kept} <= TUNED


@pytest.mark.parametrize("name, where, reason", [
    ("qblock_M128_T128_W8_S3", {}, None),
    ("qblock_M128_T128_W8_S3", {"layout": "16/8/256"}, rules.SHARED),
    ("qblock_M128_T128_W8_S3", {"gpu": A100}, None),
    ("qblock_M128_T128_W8_S4", {"gpu": A100}, rules.SHARED),
    ("qblock_M128_T128_W8_S2", {"layout": "16/8/256", "gpu": CPU}, None),
    ("qblock_M128_T128_W8_S4", {}, rules.SHARED),
    ("qblock_M128_T128_W8_S4", {"layout": "32/8/65"}, None),  # not copied ahead, so without stages
    ("qblock_M32_T64_W4_S3", {"layout": "64/1/128"}, rules.ROWS),
    ("qblock_M64_T64_W4_S3", {"layout": "128/1/128"}, None),
    ("qblock_M128_T64_W4_S3", {}, rules.REGISTERS),
    ("qblock_M128_T64_W4_S3", {"layout": "32/8/64"}, None),
    ("qblock_M128_T32_W4_S3", {"layout": "16/8/256"}, rules.REGISTERS),
    ("qblock_M128_T64_W8_S2_D1", {}, None),
    ("qblock_M128_T64_W8_S2_D1", {"cache_dtype": torch.bfloat16}, None),
    ("qblock_M128_T64_W8_S2_D1", {"cache_dtype": FP8}, None),
    ("qblock_M128_T64_W8_S2_D1", {"cache_dtype": FP8, "layout": "32/8/96"}, None),
    ("qblock_M128_T64_W8_S2_D1", {"cache_dtype": FP8, "layout": "32/8/80"}, rules.DESCRIPTORS),
    ("qblock_M128_T64_W8_S2_D1", {"gpu": A100}, rules.DESCRIPTORS),
    ("qblock_M128_T64_W8_S2_D1", {"gpu": CPU}, rules.DESCRIPTORS),
    ("qblock_M128_T64_W8_S2_D1", {"layout": "32/8/72"}, rules.DESCRIPTORS),
    ("qblock_M128_T64_W8_S2_D1", {"block_size": 24}, rules.DESCRIPTORS),
    ("stream_k_M16_T128_W4_S2_D1", {}, None),
    ("stream_k_M16_T128_W4_S2_D1", {"layout": "16/8/256"}, rules.DESCRIPTORS),
    ("stream_k_M16_T64_W4_S2_D1", {"layout": "16/8/256"}, None),
    ("stream_k_M16_T64_W4_S2_D1", {"layout": "32/1/128"}, rules.ROWS),
    ("stream_k_M16_T64_W4_S2_D1", {"gpu": A100}, rules.DESCRIPTORS),
    ("stream_k_M16_T64_W4_S2_D1", {"cache_dtype": FP8}, None),
    ("pod_M128_T64_W4_S3", {}, None),
    ("pod_M128_T64_W4_S3", {"cache_dtype": FP8}, rules.HOPPER),
    ("pod_M128_T64_W4_S3", {"gpu": A100}, rules.HOPPER),
    ("qblock_M128_T32_W8_S2", {"layout": "16/2/512"}, None),  # each program computes half of the columns
    ("qblock_M128_T32_W8_S2", {"layout": "16/8/256"}, rules.WIDE),
    ("qblock_M128_T32_W8_S3", {"layout": "16/2/512"}, rules.SHARED),
    ("qblock_M64_T32_W4_S3", {"layout": "16/4/320"}, None),
    ("qblock_M16_T64_W4_S3", {"layout": "16/2/512", "cache_dtype": FP8}, rules.REGISTERS),
    ("qblock_M16_T32_W4_S3", {"gpu": MI300X}, rules.STAGES),
    ("qblock_M16_T32_W4_S2", {"gpu": MI300X}, None),
    ("qblock_M64_T128_W4_S2", {"gpu": MI300X}, rules.SHARED),
])  # fmt: skip
def test_rules_of_a_shape(name, where, reason):
    assert reason_of(name, **where) == reason


def test_configs_for_mixed_batches_are_a_space_of_their_own():
    configs = declared_mixed()
    of_kernels = configs[len(WITHOUT_KERNEL) :]
    assert configs == (*WITHOUT_KERNEL, *of_kernels) and len(set(configs)) == len(configs)
    assert of_kernels and all(VARIANTS[config.variant].mixed for config in of_kernels)
    assert kept_at(model_of(), H100, configs) == configs
    for gpu in (A100, MI300X, CPU):
        reasons = {config: reason_of_model(config, model_of(), gpu) for config in configs}
        assert reasons == dict.fromkeys(WITHOUT_KERNEL) | dict.fromkeys(of_kernels, rules.HOPPER)
    steps, configs = MIXED.sets["steps"](0), MIXED.configs("nvidia")
    problem, _ = find_possible(steps, configs, H100, features_of=MIXED.features_of)
    for scenario in steps:
        kept = kept_at(scenario.model, H100, configs)
        assert problem.candidates[scenario.name] == tuple(map(str, kept))
        assert kept[: len(WITHOUT_KERNEL)] == WITHOUT_KERNEL
        assert tuple(problem.features[scenario.name]) == MIXED.features


@pytest.mark.parametrize("head_size", [64, 96, 128, 144, 192, 256, 320, 512])
def test_what_descriptors_fall_back_to_fits_a_hopper_gpu(head_size):
    """Layers of unusual strides launch it, at every head size."""
    configs = [config for config in declared("nvidia") if config.tma]
    assert {config.variant for config in configs} == {"qblock", "stream_k"}
    for config in configs:
        plain = without_tma(config, head_size)
        assert not plain.tma and plain.tile_size <= config.tile_size
        assert shared_bytes(plain, model_of(f"32/8/{head_size}"), H100) <= H100.shared_bytes


@pytest.mark.parametrize("name, batch, reason", [
    ("qblock_M16_T64_W4_S3", decode(136, 4096), None),
    ("qblock_M128_T64_W8_S3", decode(4, 4096), rules.EMPTY_TILES),
    ("qblock_M64_T64_W4_S3", decode(4, 4096), None),
    ("qblock_M128_T64_W8_S3", speculative(4, 8, 4096), None),
    ("qblock_M128_T64_W8_S3", mixed(8, 0.9, 4096, 512), None),
    ("qblock_M128_T64_W8_S3", speculative(4, 2, 4096), rules.EMPTY_TILES),
    ("qblock_M16_T64_W4_S3", prefill(4, 2048), rules.SMALL_TILES),
    ("qblock_M32_T64_W4_S3", prefill(4, 2048), None),
    ("qblock_M16_T64_W4_S3", chunked_prefill(1, 512, 8192), None),
    ("qblock_M16_T64_W4_S3", mixed(64, 0.5, 4096, 2048), None),  # small tiles may suit the decodes
])  # fmt: skip
def test_rules_of_a_scenario(name, batch, reason):
    assert reason_against(Config.parse(name), batch, H100) == reason


@pytest.mark.parametrize("gpu, num_reasons", [(H100, 3), (MI300X, 1)], ids=["nvidia", "amd"])
def test_every_cell_is_a_candidate_or_dropped_for_one_reason(gpu, num_reasons):
    configs = declared(gpu.vendor)
    problem, dropped = find_possible(QUICK, configs, gpu, seed=7)
    expected = Counter()
    for scenario in QUICK:
        reasons = {
            c: reason_of_model(c, scenario.model, gpu) or reason_against(c, scenario, gpu) for c in configs
        }
        expected.update(filter(None, reasons.values()))
        assert problem.candidates[scenario.name] == tuple(str(c) for c in configs if reasons[c] is None)
    assert dropped == expected and len(expected) == num_reasons
    assert problem.seed == 7 and problem.features == {s.name: s.features for s in QUICK}


def test_facts_of_a_device_for_the_rules():
    assert gpu_of({"arch": "sm_90", "multiprocessors": 132}) == H100
    assert gpu_of({"arch": "gfx942", "multiprocessors": 304}) == MI300X
    assert gpu_of({"arch": "sm_999", "multiprocessors": 9}) == Gpu("sm_999", "nvidia", 101376, 9)
    assert gpu_of({"arch": "cpu", "multiprocessors": 1}).vendor == "cpu"
