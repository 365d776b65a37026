"""No step of a server compiles a kernel again: the arguments of all steps give one specialisation a kernel.

The key is computed as Triton's launcher does, by a JITFunction of the same source and options, without a GPU.
"""

import random
from itertools import accumulate, pairwise

import pytest
import torch
from kernel_cases import FP8, kernels, make_config, record_launches
from specialisation_key import TARGETS, key

import attn_kernels
from attn_kernels import Model, Parts
from attn_kernels.kernels import qblock, splits

HEADS, KV_HEADS, HEAD_SIZE, PAGE = 8, 2, 64, 16
NUMBERS = (1, 2, 3, 8, 15, 16, 17, 32, 100, 1024)  # Triton treats 1 and multiples of 16 apart


def index_tensor(values, offset, width=None):
    """An int32 tensor that begins ``offset`` elements into its memory, with rows of ``width``."""
    shape = torch.Size((len(values),)) if width is None else torch.Size((values, width))
    tensor = torch.zeros(offset + shape.numel(), dtype=torch.int32)[offset:].view(shape)
    return tensor if width is not None else tensor.copy_(torch.tensor(values))


def serving_steps(count, seed=0):
    """Arguments of ``plan`` of random steps: decode, speculative, chunks, prompts and their mixtures."""
    chance = random.Random(seed)
    for _ in range(count):
        num_seqs = chance.choice(NUMBERS[:9])
        longest = chance.choice((1, 1, 4, 16, 300))
        query_lens = [chance.randint(0 if num_seqs > 1 else 1, longest) for _ in range(num_seqs)]
        query_lens[0] = max(1, query_lens[0])
        context_lens = [length + chance.choice((0, 1, 15, 16, 700)) for length in query_lens]
        width = -(-max(context_lens) // PAGE) + chance.choice((0, 1, 7, 16))
        table = index_tensor(num_seqs, chance.randrange(4), width + chance.randrange(3))[:, :width]
        yield (
            (
                index_tensor([0, *accumulate(query_lens)], chance.randrange(4)),
                index_tensor(context_lens, chance.randrange(4)),
                table,
            ),
            {
                "num_query_tokens": sum(query_lens),
                "max_query_len": max(query_lens),
                "max_seq_len": max(context_lens),
                "model": Model(HEADS, KV_HEADS, HEAD_SIZE, PAGE, torch.bfloat16),
            },
        )


@pytest.fixture(scope="module")
def steps():
    return list(serving_steps(300))


@pytest.fixture(scope="module")
def buffer():
    """As large as any step's queries: q and out are its first rows, q as a slice of fused Q, K and V."""
    return torch.zeros(100 * 300, (HEADS + 2 * KV_HEADS) * HEAD_SIZE, dtype=torch.bfloat16)


def run_step(step, config, buffer, **options):
    tensors, sizes = step
    tokens = sizes["num_query_tokens"]
    q = buffer[:tokens].unflatten(1, (-1, HEAD_SIZE))[:, :HEADS]
    plan = attn_kernels.plan(*tensors, **sizes, config=config, check=False)
    dtype = FP8 if "k_scale" in options else torch.bfloat16
    caches = torch.zeros(2, 4, PAGE, KV_HEADS, HEAD_SIZE).to(dtype)
    attn_kernels.run(plan, q, *caches, **options)


@pytest.mark.usefixtures("whole_and_split")
@pytest.mark.parametrize("features", ["none", "all"])
def test_steps_of_all_sizes_compile_each_kernel_once(features, steps, buffer, monkeypatch):
    launches = record_launches(monkeypatch, execute=False)
    # Contexts of more than 100 keys have their heads one after the other.
    monkeypatch.setattr(qblock, "L2_BYTES", 100 * KV_HEADS * 2 * HEAD_SIZE)
    options = {}
    if features == "all":
        options = {"sliding_window": 128, "softcap": 30.0, "k_scale": torch.ones(1), "v_scale": 0.5}
        options |= {"alibi_slopes": torch.ones(HEADS), "sinks": torch.ones(HEADS)}
    config = make_config()
    for step in steps:
        run_step(step, config, buffer, **options)
    assert len(launches) >= len(steps)
    for vendor in TARGETS:
        keys = {key(launch, vendor) for launch in launches}
        # Few splits and many are joined by one kernel each.
        reduced = {
            launch.arguments["const"].splits for launch in launches if launch.kernel == "reduce_kernel"
        }
        others = {launch.kernel for launch in launches} - {"reduce_kernel"}
        assert len(keys) == len(others) + len(reduced), differences(keys)


def differences(keys):
    """What differs among the keys of one kernel, for the message of a failed test."""
    by_kernel = {}
    for name, specialisation, options in keys:
        by_kernel.setdefault(name, []).append((*specialisation, options))
    names = kernels()
    return {
        (name, (*names[name].arg_names, "options")[i]): set(values)
        for name, found in by_kernel.items()
        for i, values in enumerate(zip(*found, strict=True))
        if len(set(values)) > 1
    }


def test_one_kernel_divides_all_batches(steps, monkeypatch):
    launches = record_launches(monkeypatch, execute=False, once_a_plan=True)
    for tensors, sizes in steps[:200]:
        starts, contexts = tensors[0].tolist(), tensors[1].tolist()
        parts = Parts.of([stop - start for start, stop in pairwise(starts)], contexts)
        attn_kernels.plan(*tensors, **sizes, parts=parts, check=False)
    launches = [launch for launch in launches if launch.kernel == "divide_kernel"]
    assert len(launches) > 20
    for vendor in TARGETS:
        keys = {key(launch, vendor) for launch in launches}
        assert len(keys) == 1, differences(keys)


def test_kernels_of_a_plan_are_compiled_once_for_every_model(steps, monkeypatch):
    launches = record_launches(monkeypatch, execute=False, once_a_plan=True)
    monkeypatch.setattr(splits, "ROW_COST", 0.01)
    chance = random.Random(0)
    for tensors, sizes in steps[:200]:
        kv_heads = chance.choice(NUMBERS[:6])
        heads = (2 * kv_heads, kv_heads, chance.choice((1, 16, 80, 256)))
        model = Model(*heads, PAGE, torch.bfloat16, chance.choice((None, FP8)))
        config = make_config("qblock", chance.choice((16, 64)), chance.choice((16, 64)))
        attn_kernels.plan(*tensors, **(sizes | {"model": model}), config=config, for_capture=True)
    for vendor in TARGETS:
        keys = {key(launch, vendor) for launch in launches}
        assert {name for name, *_ in keys} == {"split_keys_kernel"}
        assert len(keys) == 1, differences(keys)
