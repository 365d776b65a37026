"""Scores of any magnitude, and tensors that hold more than a batch or are very large, against float64."""

import dataclasses

import pytest
import torch
from kernel_cases import FP8, assert_close, check, checking_overflows, make_config, random_batch
from launch_recorder import far

from attn_kernels import run
from attn_kernels.engines.store import Store

pytestmark = pytest.mark.usefixtures("whole_and_split", "overflow_checks")


@pytest.fixture
def overflow_checks():
    with checking_overflows():
        yield


@pytest.mark.parametrize(
    "factor, options",
    [(1, {"softmax_scale": 1e-3}), (1, {"softmax_scale": 1}), (300, {}), (300, {"softcap": 30.0})],
)
def test_scores_of_any_magnitude(factor, options):
    batch = random_batch(((1, 1), (19, 40)), ratio=1, head_size=16)
    batch.q.mul_(factor)
    check(batch, make_config(), **options)
    for factor in (1e-20, 1e6):  # outside the range of fp16, beside fp8 keys
        types = {"dtype": torch.bfloat16, "cache_dtype": FP8}
        batch = random_batch(((1, 1), (19, 40)), ratio=2, kv_heads=1, head_size=32, **types)
        batch.q.mul_(factor)
        check(batch, make_config(), softmax_scale=0.2 / factor)


def test_fp8_caches_that_begin_at_odd_addresses():
    batch = random_batch(((1, 2), (19, 40)), ratio=2, kv_heads=1, head_size=32, cache_dtype=FP8)

    def moved(cache):
        memory = torch.zeros(cache.numel() + 1, dtype=torch.uint8)
        memory[1:].copy_(cache.contiguous().view(torch.uint8).view(-1))
        return memory[1:].view(FP8).view(cache.shape)

    batch = dataclasses.replace(batch, k_cache=moved(batch.k_cache), v_cache=moved(batch.v_cache))
    assert batch.k_cache.data_ptr() % 2
    check(batch, make_config())


# Tensors of more than 2^31 elements, of which only a few pages of memory are ever touched.
FAR = 2**31 + 64  # elements, which only 64-bit offsets reach


@pytest.mark.parametrize("tile_size", [16, 64])
def test_pages_far_apart(tile_size):
    batch = random_batch(((2, 1), (19, 20)), ratio=1, head_size=16, block_size=32, seed=3)
    last = len(batch.k_cache) - 1
    assert (batch.block_table == last).any(), "another seed puts keys on the last page"
    step = FAR // last // 8 * 8 + 8
    caches = [far(cache, 0, step) for cache in (batch.k_cache, batch.v_cache)]
    out = run(batch.plan(config=make_config(tile_size=tile_size)), batch.q, *caches)
    assert_close(out, batch.reference())


@pytest.mark.parametrize(
    "dimension, lens, kv_heads", [(0, ((17, 1), (17, 3)), 1), (1, ((1,), (3,)), 18)], ids=["tokens", "heads"]
)
def test_tokens_and_query_heads_far_apart(dimension, lens, kv_heads):
    """The last lies past 2^31 elements, at strides that are no multiple of 16 bytes."""
    batch = random_batch(lens, ratio=1, kv_heads=kv_heads, head_size=16)
    nothing = torch.full_like(batch.q, torch.nan)
    q, out = (far(tensor, dimension, 2**27 - 1) for tensor in (batch.q, nothing))
    assert q.stride(dimension) * (q.shape[dimension] - 1) > 2**31
    plan = batch.plan(config=make_config())
    assert_close(run(plan, q, batch.k_cache, batch.v_cache, out=out), batch.reference())


def test_rows_of_a_block_table_far_apart():
    batch = random_batch(((1, 1, 1), (19, 20, 3)), ratio=1, head_size=16)
    table = far(batch.block_table, 0, FAR // 2)
    plan = batch.plan(config=make_config())
    object.__setattr__(plan, "batch", plan.batch._replace(block_table=table))
    assert_close(run(plan, batch.q, batch.k_cache, batch.v_cache), batch.reference())


def test_new_keys_and_heads_far_apart():
    """A cache whose heads lie one behind the other."""
    keys = torch.randn(3, 18, 16).half()
    cache = far(torch.full((2, 16, 18, 16), torch.nan).half(), 2, 2**27)
    assert cache.stride(2) * 17 > 2**31
    assert Store(cache, cache)(keys, keys, torch.tensor([3, 17, 20]))
    assert torch.equal(torch.stack([cache[0, 3], cache[1, 1], cache[1, 4]]), keys)
