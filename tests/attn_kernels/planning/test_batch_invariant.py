"""Models with `batch_invariant`: which configs and launches their plans have, and what is refused."""

from dataclasses import replace

import pytest
import torch
from kernel_cases import make_config, random_batch

from attn_kernels import Config, Lengths, Model, Parts, Workspace
from attn_kernels.choose.choices import choices_for
from attn_kernels.choose.mixed import SEPARATE
from attn_kernels.choose.packages import kernel_package
from attn_kernels.kernels.invariant import SPLIT_KEYS, find_invariant_splits

MODEL = Model(8, 2, 128, 16, torch.bfloat16, batch_invariant=True)
CPU = torch.device("cpu")


pytestmark = pytest.mark.usefixtures("new_process")


def plan_of(batch, **options):
    return batch.plan(model=replace(batch.model, batch_invariant=True), **options)


@pytest.mark.parametrize("device_key", [None, "nvidia_h100", "amd"])
def test_one_config_serves_all_batches_of_a_model(device_key):
    choices = choices_for(MODEL, CPU, device_key)
    batches = [((1,) * 7, (90,) * 7), ((500, 3), (900, 5000)), ((4096,), (4096,))]
    assert {choices.config(Lengths.of(*lens)) for lens in batches} == set(choices.possible())
    assert {config.variant for config in choices.for_any_model()} == {"invariant"} and not choices.fused()


def test_parts_are_launched_one_after_the_other_with_one_config():
    batch = random_batch(((1, 2, 40), (30, 9, 90)))
    plan = plan_of(batch, parts=Parts.of(batch.query_lens, batch.context_lens))
    assert plan.fused is None and len({part.config for part in plan.parts}) == 1 and len(plan.parts) == 2
    assert plan_of(batch, parts=Parts.of((1, 2, 40), (30, 9, 90)), config=SEPARATE).parts


@pytest.mark.parametrize(
    "options, variables, named",
    [
        ({"config": make_config()}, {}, "config is .*batch_invariant"),
        ({"config": Config("stream_k", 16, 64, tma=1)}, {}, "config is .*batch_invariant"),
        ({}, {"CONFIG": "qblock_M16_T16_W4_S2"}, "ATTN_KERNELS_CONFIG is .*batch_invariant"),
        ({}, {"CONFIG": "pod_M128_T64_W4_S2"}, "ATTN_KERNELS_CONFIG is .*batch_invariant"),
        ({"device_key": "none"}, {}, "device_key"),
    ],
)
def test_other_variants_and_unknown_devices_are_refused(options, variables, named, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(f"ATTN_KERNELS_{name}", value)
    with pytest.raises(ValueError, match=f"^{named}"):
        plan_of(random_batch(((1,), (9,))), **options)


def test_a_package_without_the_module_is_named(monkeypatch):
    def missing(kernel):
        raise ImportError(kernel)

    package = "attn_kernels.choose.choices.kernel_package"
    monkeypatch.setattr(package, lambda name: kernel_package(name) if "unified" in name else missing(name))
    with pytest.raises(ValueError, match="invariant_attention"):
        plan_of(random_batch(((1,), (9,))))


def test_contexts_are_split_at_the_same_keys_where_partial_results_have_room():
    config, one = Config("invariant", 64, 64), Lengths.of([1], [20 * SPLIT_KEYS - 5])
    assert find_invariant_splits(config, MODEL, one, 132, 1 << 18) == (20, SPLIT_KEYS)
    assert find_invariant_splits(config, MODEL, one, 132, 8 * 19) == (1, SPLIT_KEYS)
    many = Lengths.of([1] * 512, [1500] * 512)
    assert find_invariant_splits(config, MODEL, many, 132, 1 << 18) == (1, SPLIT_KEYS)


def test_no_launch_has_more_programs_than_a_grid_takes():
    heads, config = replace(MODEL, num_query_heads=64, num_kv_heads=64), Config("invariant", 64, 64)
    for keys in (1000 * SPLIT_KEYS, 1024 * SPLIT_KEYS):
        count, _ = find_invariant_splits(config, heads, Lengths.of([1], [keys]), 132, 1 << 18)
        assert count == (1000 if keys == 1000 * SPLIT_KEYS else 1)


def test_a_workspace_has_room_for_splits():
    workspace = Workspace.for_maxima(CPU, MODEL, max_query_tokens=8, max_num_seqs=8)
    batch = random_batch(((1,), (9,)), ratio=8, head_size=128)
    assert workspace.max_partials > 1 and plan_of(batch, workspace=workspace).workspace
