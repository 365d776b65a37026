"""The declared config space, and the rules that drop configs from it."""

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_kernels import Config
from attn_kernels.choose.mixed import WITHOUT_KERNEL
from attn_kernels.kernels.arguments import without_descriptors
from attn_kernels.kernels.registry import VARIANTS, check_config
from attn_kernels.measure.batches import HeadLayout
from attn_kernels.tuning.scenarios.scenario import Shape
from attn_kernels.tuning.space import rules
from attn_kernels.tuning.space.rules import shared_bytes
from attn_kernels.tuning.space.space import Gpu, declared, declared_mixed, space_at

TUNED = {name for name, variant in VARIANTS.items() if variant.grids and not variant.mixed}
ON_HOPPER = {name for name in TUNED if all(all(grid.D) for grid in VARIANTS[name].grids)}
ROOT = Path(__file__).parents[4]
H100 = Gpu("sm_90", "nvidia", 232448, 132)
A100 = Gpu("sm_80", "nvidia", 166912, 108)
MI300X = Gpu("gfx942", "amd", 65536, 304)
CPU = Gpu("cpu", "cpu", 0, 3)
FP8 = torch.float8_e4m3fn
LAYOUTS = [
    "32/8/128",
    "8/1/128",
    "28/4/128",
    "32/32/128",
    "32/8/64",
    "16/8/256",
    "32/1/128",
    "64/1/128",
    "128/1/128",
]


def shape(layout="32/8/128", **other):
    return Shape(HeadLayout.parse(layout), **{"block_size": 16, "dtype": torch.bfloat16, **other})


def reason_of(name, gpu=H100, **where):
    """Why a config is dropped at a shape; None if it is not."""
    space = space_at(shape(**where), gpu, [Config.parse(name)])
    assert len(space.configs) + len(space.dropped) == 1
    return space.dropped[0].reason if space.dropped else None


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
        r"([0-9]+)\s+`(\w+)`", (ROOT / "docs/space.md").read_text().split("## At a shape")[0]
    )
    assert counts == {variant: int(count) for count, variant in in_docs}


def test_few_tiles_have_segments():
    """Each is compiled for every number of segments."""
    segmented = [config for config in declared("nvidia") if config.variant == "segmented"]
    assert len({config._replace(num_segments=1) for config in segmented}) <= 16


def test_an_unknown_vendor_is_named():
    with pytest.raises(ValueError, match="'intel'"):
        declared("intel")


@pytest.mark.parametrize("name", [
    "qblock_M16_T64_W4_S3", "qblock_M128_T128_W8_S2_D1", "qblock_M128_T64_W8_S3_D1", "qblock_M64_T64_W4_S3",
    "qblock_M128_T64_W8_S3", "qblock_M128_T32_W4_S3", "segmented_M16_T32_N32_W2_S3",
    "segmented_M16_T64_N8_W4_S3", "segmented_M16_T16_N16_W4_S3",
])  # fmt: skip
def test_configs_that_measured_best_are_declared(name):
    assert Config.parse(name) in declared("nvidia")
    assert reason_of(name) is None


def test_every_declared_config_is_of_use_at_some_shape():
    useful = {
        config for layout in LAYOUTS for config in space_at(shape(layout), H100, declared("nvidia")).configs
    }
    assert not set(declared("nvidia")) - useful


@pytest.mark.parametrize("gpu", [H100, A100, MI300X, CPU])
@pytest.mark.parametrize("cache_dtype", [None, FP8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_shape_parts_the_space_and_leaves_every_variant(layout, cache_dtype, gpu):
    configs = declared(gpu.vendor)
    space = space_at(shape(layout, cache_dtype=cache_dtype), gpu, configs)
    gone = {dropped.config for dropped in space.dropped}
    assert space.configs == tuple(config for config in configs if config not in gone)
    assert len(space.configs) + len(space.dropped) == len(configs)
    if "256" not in layout or gpu is not MI300X:
        assert TUNED - ON_HOPPER <= {config.variant for config in space.configs} <= TUNED


@pytest.mark.parametrize("layout, least", [("32/8/128", 160), ("28/4/128", 160), ("16/8/256", 100)])
def test_usual_shapes_keep_most_of_the_space(layout, least):
    assert len(space_at(shape(layout), H100, declared("nvidia")).configs) >= least


@pytest.mark.parametrize("name, where, reason", [
    ("qblock_M128_T128_W8_S3", {}, None),
    ("qblock_M128_T128_W8_S3", {"layout": "16/8/256"}, rules.SHARED),
    ("qblock_M128_T128_W8_S3", {"gpu": A100}, None),
    ("qblock_M128_T128_W8_S4", {"gpu": A100}, rules.SHARED),
    ("qblock_M128_T128_W8_S2", {"layout": "16/8/256", "gpu": CPU}, None),
    ("qblock_M128_T128_W8_S4", {}, rules.SHARED),
    ("qblock_M128_T128_W8_S4", {"layout": "32/8/65"}, None),  # not copied ahead, so without stages
    ("qblock_M32_T64_W4_S3", {"layout": "64/1/128"}, rules.ROWS),
    ("segmented_M16_T64_N8_W4_S3", {"layout": "64/2/128"}, rules.ROWS),
    ("static_grid_M16_T64_W4_S3_P2", {"layout": "64/2/128"}, rules.ROWS),
    ("split_M64_T64_W4_S3", {"layout": "128/1/128"}, None),
    ("qblock_M128_T64_W4_S3", {}, rules.REGISTERS),
    ("qblock_M128_T64_W4_S3", {"layout": "32/8/64"}, None),
    ("qblock_M128_T32_W4_S3", {"layout": "16/8/256"}, rules.REGISTERS),
    ("qblock_M128_T32_W4_S3", {"layout": "128/1/256"}, None),  # vLLM's fixed choice
    ("naive_M1_T128_W4_S2", {"layout": "16/8/256"}, rules.REGISTERS),
    ("qblock_M128_T64_W8_S2_D1", {}, None),
    ("qblock_M128_T64_W8_S2_D1", {"cache_dtype": torch.bfloat16}, None),
    ("qblock_M128_T64_W8_S2_D1", {"cache_dtype": FP8}, None),
    ("qblock_M128_T64_W8_S2_D1", {"cache_dtype": FP8, "layout": "32/8/96"}, None),
    ("qblock_M128_T64_W8_S2_D1", {"cache_dtype": FP8, "layout": "32/8/80"}, rules.DESCRIPTORS),
    ("qblock_M128_T64_W8_S2_D1", {"gpu": A100}, rules.DESCRIPTORS),
    ("qblock_M128_T64_W8_S2_D1", {"gpu": CPU}, rules.DESCRIPTORS),
    ("qblock_M128_T64_W8_S2_D1", {"layout": "32/8/72"}, rules.DESCRIPTORS),
    ("qblock_M128_T64_W8_S2_D1", {"block_size": 24}, rules.DESCRIPTORS),
    ("stream_k_M16_T128_W4_S2_P2_D1", {}, None),
    ("stream_k_M16_T128_W4_S2_P2_D1", {"layout": "16/8/256"}, rules.DESCRIPTORS),
    ("stream_k_M16_T64_W4_S2_P2_D1", {"layout": "16/8/256"}, None),
    ("stream_k_M16_T64_W4_S2_D1", {"layout": "32/1/128"}, rules.ROWS),
    ("stream_k_M16_T64_W4_S2_D1", {"gpu": A100}, rules.DESCRIPTORS),
    ("stream_k_M16_T64_W4_S2_D1", {"cache_dtype": FP8}, None),
    ("segmented_M16_T16_N16_W4_S3", {}, None),
    ("segmented_M16_T16_N16_W4_S3", {"cache_dtype": FP8}, rules.FIXED_ONLY),
    ("segmented_M32_T16_N16_W4_S3", {}, rules.FIXED_ONLY),
    ("qblock_M16_T32_W4_S3", {"gpu": MI300X}, rules.STAGES),
    ("qblock_M16_T32_W4_S2", {"gpu": MI300X}, None),
    ("qblock_M64_T128_W4_S2", {"gpu": MI300X}, rules.SHARED),
])  # fmt: skip
def test_rules_of_a_shape(name, where, reason):
    assert reason_of(name, **where) == reason


@settings(deadline=None)
@given(
    st.sampled_from(LAYOUTS),
    st.sampled_from([None, FP8]),
    st.sampled_from([("sm_90", "nvidia"), ("sm_80", "nvidia"), ("sm_120", "nvidia"), ("gfx942", "amd")]),
    st.integers(0, 300_000),
    st.integers(0, 300_000),
)
def test_more_shared_memory_never_drops_more(layout, cache_dtype, device, less, more):
    less, more = sorted((less, more))
    where = shape(layout, cache_dtype=cache_dtype)
    kept = [
        set(space_at(where, Gpu(*device, size, 100), declared(device[1])).configs) for size in (less, more)
    ]
    assert kept[0] <= kept[1]


COMPILE = """
import json, sys
from attn_kernels import Config
from attn_kernels.offline import compile_config
for name, head_size, features in json.loads(sys.argv[1]):
    found = compile_config(Config.parse(name), target="sm_90", head_size=head_size, block_size=16,
                           queries_per_kv=4, features=features)
    print(max(need.shared_bytes for need in found.values()))
"""
NEAR_THE_LIMIT = [
    ("qblock_M128_T128_W8_S3", 128, []),  # fits
    ("qblock_M16_T64_W4_S4", 256, []),  # fits
    ("segmented_M128_T64_N4_W8_S3", 256, []),  # does not
    ("qblock_M64_T64_W4_S3", 128, ["fp8"]),  # fits
]


def test_shared_memory_is_what_the_compiler_allocates():
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", COMPILE, json.dumps(NEAR_THE_LIMIT)]
    printed = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for (name, head_size, features), line in zip(NEAR_THE_LIMIT, printed.splitlines(), strict=True):
        where = shape(f"32/8/{head_size}", cache_dtype=FP8 if features else None)
        assert shared_bytes(Config.parse(name), where, H100) == int(line), name


def test_configs_for_mixed_batches_are_a_space_of_their_own():
    configs = declared_mixed()
    assert configs[: len(WITHOUT_KERNEL)] == WITHOUT_KERNEL and len(set(configs)) == len(configs)
    of_kernels = configs[len(WITHOUT_KERNEL) :]
    assert of_kernels and all(VARIANTS[config.variant].mixed for config in of_kernels)
    assert not {config.variant for config in configs} & {config.variant for config in declared("nvidia")}
    for config in of_kernels:
        check_config(config)
    llama = shape("32/8/128")
    assert space_at(llama, H100, configs).configs == configs
    for gpu in (A100, MI300X, CPU):
        space = space_at(llama, gpu, configs)
        assert space.configs == WITHOUT_KERNEL and {one.reason for one in space.dropped} == {rules.HOPPER}


@pytest.mark.parametrize("head_size", [64, 96, 128, 144, 192, 256])
def test_what_descriptors_fall_back_to_fits_a_hopper_gpu(head_size):
    """Layers of unusual strides launch it, at every head size."""
    configs = [config for config in declared("nvidia") if config.descriptors]
    assert {config.variant for config in configs} == {"qblock", "stream_k"}
    for config in configs:
        plain = without_descriptors(config, head_size)
        assert not plain.descriptors and plain.tile_size <= config.tile_size
        assert shared_bytes(plain, shape(f"32/8/{head_size}"), H100) <= H100.shared_bytes
