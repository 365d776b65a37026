"""Segments that the device counts: what it counts, and that results are right whatever the count."""

import random
import sys
from itertools import pairwise
from types import SimpleNamespace

import pytest
import triton
from captured_server import HEADS, Server, batch_of, random_lens
from kernel_cases import FP8, assert_close, count_segments_by, make_config, random_batch, scores

from attn_kernels import Config
from attn_kernels.testing.poisoned import run_poisoned
from generated.unified_attention import MODULES

SEGMENTS = 5
BY_LENGTH = (1, 7)  # there is no room for 7
BY_ELEMENT_SIZE = (0, 4)  # of fp8 caches, and of others


@triton.jit
def by_element_size(
    kv_element_size,
    block_size,
    head_size,
    num_kv_heads,
    num_query_heads,
    max_seq_len,
    max_query_len,
    num_kv_tokens,
    num_query_tokens,
    num_seqs,
):
    """A spec may have its features in any order."""
    return kv_element_size - 1


@triton.jit
def by_length(
    num_seqs,
    num_query_tokens,
    num_kv_tokens,
    max_query_len,
    max_seq_len,
    num_query_heads,
    num_kv_heads,
    head_size,
    block_size,
    kv_element_size,
):
    return max_seq_len % 2


pytestmark = pytest.mark.usefixtures("new_process")


COUNTING = make_config("segmented", num_segments=SEGMENTS, device_segments=1)


@pytest.mark.parametrize("names, fp8", [("window=37 sinks", False), ("softcap alibi scales=tensor", True)])
def test_replays_are_right_whatever_the_count(names, fp8, monkeypatch):
    count_segments_by(by_length, BY_LENGTH, monkeypatch)
    rng = random.Random(names)
    options, cache_dtype = scores(HEADS, names), FP8 if fp8 else None
    server = Server(COUNTING, cache_dtype=cache_dtype, **options)
    counts = set()
    for seed in range(20):
        if seed > 5 and len(counts) == 2:
            break
        batch = batch_of(*random_lens(rng), seed, cache_dtype)
        if len(batch.q):
            assert_close(server.replay(batch), batch.reference(**options))
            longest = max(k for q, k in zip(batch.query_lens, batch.context_lens, strict=True) if q)
            assert server.plan.workspace[-1].tolist() == [min(BY_LENGTH[longest % 2], SEGMENTS)]
            counts.update(server.plan.workspace[-1].tolist())
    assert counts == {1, SEGMENTS}


def test_features_are_passed_by_name_and_the_count_is_at_least_one(monkeypatch):
    """By plans that share all but the caches' element."""
    count_segments_by(by_element_size, BY_ELEMENT_SIZE, monkeypatch)
    for cache_dtype, count in ((None, 4), (FP8, 1), (None, 4)):
        batch = random_batch(((1, 2), (40, 9)), cache_dtype=cache_dtype)
        plan = batch.plan(config=COUNTING)
        assert plan.workspace[-1].tolist() == [count]
        assert_close(run_poisoned(batch, plan), batch.reference())


def test_the_module_of_the_device_key_counts():
    """As many as `choose` on the host, for plans that share all but the module."""
    rng, counts = random.Random(0), set()
    config = Config("segmented", 16, 64, num_segments=16, device_segments=1)
    for _ in range(15):
        lens = [(1, rng.choice((64, 300, 1000, 4000))) for _ in range(rng.choice((1, 2, 20)))]
        batch = random_batch(tuple(zip(*lens, strict=True)), kv_heads=4, head_size=64)
        for key in ("nvidia_h100", "amd_mi300x"):
            plan = batch.plan(config=config, device_key=key)
            (found,) = plan.workspace[-1].tolist()
            assert found == min(16, MODULES[key].choose(**features_of(plan)).num_segments)
            counts.add((key, found))
    assert len(counts) > 2  # the H100's module asks for 1 and for 16 or more


def features_of(plan):
    lens = plan.cu_seqlens_q.tolist()
    return {
        "num_seqs": plan.num_seqs,
        "num_query_tokens": plan.num_query_tokens,
        "num_kv_tokens": int(plan.seqused_k.sum()),
        "max_query_len": max(b - a for a, b in pairwise(lens)),
        "max_seq_len": int(plan.seqused_k.max()),
        "num_query_heads": plan.model.num_query_heads,
        "num_kv_heads": plan.model.num_kv_heads,
        "head_size": plan.model.head_size,
        "block_size": plan.model.block_size,
        "kv_element_size": plan.model.kv_element_size,
    }


def test_the_module_of_the_device_counts_for_a_forced_config(monkeypatch):
    monkeypatch.setenv("ATTN_KERNELS_CONFIG", "segmented_M16_T16_N4_W4_S2_G1")
    batch = random_batch(((1,), (90,)))
    plan = batch.plan()
    assert plan.config.device_segments == 1
    assert plan.workspace[-1].tolist() == [1]  # of `default`, which serves CPUs


@pytest.mark.parametrize(
    "functions",
    [
        None,  # no such folder
        SimpleNamespace(),  # a folder without modules, such as one that holds what Python cached
        SimpleNamespace(MODULES={"default": SimpleNamespace()}),  # an older module
    ],
)
def test_modules_without_triton_functions_are_named(functions, monkeypatch):
    monkeypatch.setitem(sys.modules, "generated.unified_attention.in_kernel", functions)
    with pytest.raises(ValueError, match="device_segments is 1, but"):
        random_batch(((1,), (90,))).plan(config=COUNTING)
