"""No step of a server compiles a kernel again: the arguments of all steps give one specialisation a kernel.

The key is computed as Triton's launcher does, by a JITFunction of the same source and options, without a GPU.
"""

import dataclasses
import random

import pytest
import torch
from kernel_cases import FP8, make_config, record_launches
from server_steps import MOST_TOKENS, steps
from specialisation_key import TARGETS, key

import attn_kernels
from attn_kernels import Model
from attn_kernels.kernels import qblock, splits

HEADS, KV_HEADS, HEAD_SIZE, PAGE = 8, 2, 64, 16


@pytest.fixture(scope="module")
def every_step():
    return list(steps(300, [Model(HEADS, KV_HEADS, HEAD_SIZE, PAGE, torch.bfloat16)]))


@pytest.fixture(scope="module")
def buffer():
    """As large as any step's queries: q and out are its first rows, q as a slice of fused Q, K and V."""
    return torch.zeros(MOST_TOKENS, (HEADS + 2 * KV_HEADS) * HEAD_SIZE, dtype=torch.bfloat16)


def run_step(step, config, buffer, **options):
    plan = step.plan(config=config)
    q = buffer[: plan.lengths.num_query_tokens].unflatten(1, (-1, HEAD_SIZE))[:, :HEADS]
    dtype = FP8 if "k_scale" in options else torch.bfloat16
    caches = torch.zeros(2, 4, PAGE, KV_HEADS, HEAD_SIZE).to(dtype)
    attn_kernels.run(plan, q, *caches, **options)


@pytest.mark.usefixtures("whole_and_split")
@pytest.mark.parametrize("features", ["none", "all"])
def test_steps_of_all_sizes_compile_each_kernel_once(features, every_step, buffer, monkeypatch):
    launches = record_launches(monkeypatch, execute=False)
    # Contexts of more than 100 keys have their heads one after the other.
    monkeypatch.setattr(qblock, "L2_BYTES", 100 * KV_HEADS * 2 * HEAD_SIZE)
    options = {}
    if features == "all":
        options = {"sliding_window": 128, "softcap": 30.0, "k_scale": torch.ones(1), "v_scale": 0.5}
        options |= {"alibi_slopes": torch.ones(HEADS), "sinks": torch.ones(HEADS)}
    config = make_config()
    for step in every_step:
        run_step(step, config, buffer, **options)
    assert len(launches) >= len(every_step)
    for vendor in TARGETS:
        keys = {key(launch, vendor) for launch in launches}
        # Few splits and many are joined by one kernel each.
        reduced = {
            launch.arguments["const"].splits for launch in launches if launch.kernel == "reduce_kernel"
        }
        others = {launch.kernel for launch in launches} - {"reduce_kernel"}
        assert len(keys) == len(others) + len(reduced)


def test_one_kernel_divides_all_batches(every_step, monkeypatch):
    launches = record_launches(monkeypatch, execute=False, once_a_plan=True)
    for step in every_step:
        lens = {"query_lens": (1, *step.query_lens), "context_lens": (9, *step.context_lens)}
        mixed = dataclasses.replace(step, **lens)  # a decode comes first
        mixed.plan(parts=mixed.parts)
    launches = [launch for launch in launches if launch.kernel == "divide_kernel"]
    assert len(launches) > 20
    for vendor in TARGETS:
        keys = {key(launch, vendor) for launch in launches}
        assert len(keys) == 1


def test_kernels_of_a_plan_are_compiled_once_for_every_model(every_step, monkeypatch):
    launches = record_launches(monkeypatch, execute=False, once_a_plan=True)
    monkeypatch.setattr(splits, "ROW_COST", 0.01)
    chance = random.Random(0)
    for step in every_step[:200]:
        kv_heads = chance.choice((1, 2, 3, 8, 15, 16))
        heads = (2 * kv_heads, kv_heads, chance.choice((1, 16, 80, 256)))
        model = Model(*heads, PAGE, torch.bfloat16, chance.choice((None, FP8)))
        config = make_config("qblock", chance.choice((16, 64)), chance.choice((16, 64)))
        dataclasses.replace(step, model=model).plan(config=config, for_capture=True)
    for vendor in TARGETS:
        keys = {key(launch, vendor) for launch in launches}
        assert {name for name, *_ in keys} == {"split_keys_kernel"}
        assert len(keys) == 1
