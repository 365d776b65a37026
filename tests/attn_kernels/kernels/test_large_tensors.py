"""Tensors of more than 2^31 elements, of which only a few pages of memory are ever touched."""

import pytest
import torch
from kernel_cases import assert_close, make_config, random_batch
from launch_recorder import far

from attn_kernels import run

pytestmark = pytest.mark.usefixtures("whole_and_split")

FAR = 2**31 + 64  # elements, which only 64-bit offsets reach


@pytest.mark.parametrize("tile_size", [16, 64])
def test_pages_far_apart(tile_size, overflow_checks):
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
def test_tokens_and_query_heads_far_apart(dimension, lens, kv_heads, overflow_checks):
    """The last lies past 2^31 elements, at strides that are no multiple of 16 bytes."""
    batch = random_batch(lens, ratio=1, kv_heads=kv_heads, head_size=16)
    nothing = torch.full_like(batch.q, torch.nan)
    q, out = (far(tensor, dimension, 2**27 - 1) for tensor in (batch.q, nothing))
    assert q.stride(dimension) * (q.shape[dimension] - 1) > 2**31
    plan = batch.plan(config=make_config())
    assert_close(run(plan, q, batch.k_cache, batch.v_cache, out=out), batch.reference())


def test_rows_of_a_block_table_far_apart(overflow_checks):
    batch = random_batch(((1, 1, 1), (19, 20, 3)), ratio=1, head_size=16)
    table = far(batch.block_table, 0, FAR // 2)
    plan = batch.plan(config=make_config())
    object.__setattr__(plan.batch, "block_table", table)
    assert_close(run(plan, batch.q, batch.k_cache, batch.v_cache), batch.reference())
