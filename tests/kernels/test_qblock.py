"""The Q-Block kernel against the float64 reference, with every byte that it must not use poisoned."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attn_kernels
from attn_kernels import Config, run
from attn_kernels.testing import GARBAGE_PAGE, make_batch, relative_error, run_poisoned

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.5e-2}
# (query lengths, context lengths): fresh prefill, chunk of a prefill over cached context, decode, a short
# speculative query, and a sequence without any query token.
MIXED = ((9, 4, 1, 0, 3), (9, 37, 50, 20, 3 + 16))


def config(block_m=16, tile_size=16, num_warps=4, num_stages=2):
    return Config("qblock", block_m, tile_size, num_warps, num_stages)


def check(lens, launch, ratio=4, kv_heads=2, head_size=32, block_size=16, dtype=torch.float16, seed=0):
    batch = make_batch(
        *lens,
        num_query_heads=ratio * kv_heads,
        num_kv_heads=kv_heads,
        head_size=head_size,
        block_size=block_size,
        dtype=dtype,
        seed=seed,
    )
    out = run_poisoned(batch, batch.plan(config=launch))
    assert relative_error(out, batch.reference()) < TOLERANCE[dtype]


@pytest.mark.parametrize("ratio", [1, 3, 4, 7, 8])
@pytest.mark.parametrize("block_m", [16, 64])
def test_head_ratios(ratio, block_m):
    check(MIXED, config(block_m), ratio)


@pytest.mark.parametrize("block_m", [16, 32, 128])
def test_a_group_larger_than_a_block_is_split(block_m):
    check(((2, 0, 1), (19, 0, 30)), config(block_m), ratio=71, kv_heads=1)


@pytest.mark.parametrize("head_size", [1, 8, 40, 64, 80, 128, 256])
def test_head_sizes(head_size):
    check(MIXED, config(), head_size=head_size)


@pytest.mark.parametrize("block_size", [1, 16, 24, 128])
@pytest.mark.parametrize("tile_size", [16, 32, 128])
def test_tile_sizes_are_free_of_page_sizes(block_size, tile_size):
    check(((6, 1, 5), (6, 150, 70)), config(tile_size=tile_size), block_size=block_size)


@pytest.mark.parametrize("block_m, tile_size", [(16, 256), (32, 64), (64, 32), (128, 16), (128, 256)])
def test_configs(block_m, tile_size):
    check(((70, 1, 3), (70, 300, 35)), config(block_m, tile_size), ratio=2, kv_heads=1)


@pytest.mark.parametrize("ratio, head_size, tile_size", [(4, 64, 32), (7, 40, 16), (1, 128, 64)])
def test_bfloat16(ratio, head_size, tile_size):
    check(MIXED, config(tile_size=tile_size), ratio, head_size=head_size, dtype=torch.bfloat16)


@pytest.mark.parametrize("length", [15, 16, 17, 31, 32, 33])
def test_lengths_around_a_tile(length):
    check(((length, 1, 2), (length, length, 2 * length)), config(), ratio=2)


@pytest.mark.parametrize(
    "query_lens, context_lens",
    [
        ((0, 0, 0), (5, 0, 17)),
        ((0,), (0,)),
        ((), ()),
        ((0, 1, 0, 0, 1, 0), (0, 40, 3, 0, 1, 33)),
        ((1,) * 33, tuple(range(1, 34))),
        ((5,), (21,)),
    ],
    ids=["no query tokens", "empty", "no sequences", "holes", "decode", "one sequence"],
)
def test_batches_at_the_edge(query_lens, context_lens):
    check((query_lens, context_lens), config(), ratio=2, kv_heads=1)


def test_one_head_after_another_when_they_would_not_share_the_cache(monkeypatch):
    monkeypatch.setattr("attn_kernels.kernels.qblock.L2_BYTES", 3 * 2 * 50 * 32 * 2)
    check(MIXED, config(), ratio=8, kv_heads=4)


@pytest.mark.parametrize("softmax_scale", [0.5, 1e-3])
def test_softmax_scale(softmax_scale):
    batch = make_batch(
        *MIXED, num_query_heads=2, num_kv_heads=1, head_size=32, block_size=16, dtype=torch.float16
    )
    out = run_poisoned(batch, batch.plan(config=config()), softmax_scale)
    assert relative_error(out, batch.reference(softmax_scale)) < TOLERANCE[torch.float16]


def test_large_scores_do_not_overflow():
    batch = make_batch(
        *MIXED, num_query_heads=2, num_kv_heads=1, head_size=32, block_size=16, dtype=torch.float16
    )
    batch.q.mul_(300)
    out = run_poisoned(batch, batch.plan(config=config()))
    assert relative_error(out, batch.reference()) < TOLERANCE[torch.float16]


def strided(tensor, dimension, padding, fill=torch.nan):
    """The same values with ``padding`` elements of ``fill`` between the entries of a dimension."""
    shape = list(tensor.shape)
    shape[dimension] += padding
    wide = torch.full(shape, fill, dtype=tensor.dtype)
    return wide.narrow(dimension, 0, tensor.shape[dimension]).copy_(tensor)


@pytest.mark.parametrize("padding", [1, 8])
def test_strided_tensors(padding):
    batch = make_batch(
        *MIXED, num_query_heads=8, num_kv_heads=2, head_size=32, block_size=16, dtype=torch.float16
    )
    q = strided(strided(batch.q, 1, 3), 2, padding)
    k_cache = strided(strided(batch.k_cache, 3, padding), 1, 2)
    v_cache = strided(batch.v_cache.permute(0, 2, 1, 3).contiguous(), 3, padding).permute(0, 2, 1, 3)
    out = strided(torch.full_like(batch.q, torch.nan), 1, 2)
    plan = batch.plan(config=config())
    assert run(plan, q, k_cache, v_cache, out=out) is out
    assert relative_error(out, batch.reference()) < TOLERANCE[torch.float16]
    assert torch.isnan(out._base[:, 8:]).all(), "wrote between the rows of out"


def test_a_part_of_a_batch_with_views_of_its_index_tensors():
    batch = make_batch(
        *MIXED, num_query_heads=2, num_kv_heads=1, head_size=32, block_size=16, dtype=torch.float16
    )
    start = batch.query_lens[0]
    plan = attn_kernels.plan(
        (batch.cu_seqlens_q - start)[1:],
        batch.seqused_k[1:],
        strided(batch.block_table, 1, 5, fill=GARBAGE_PAGE)[1:],
        num_query_tokens=len(batch.q) - start,
        max_query_len=4,
        max_seq_len=50,
        num_query_heads=2,
        num_kv_heads=1,
        head_size=32,
        block_size=16,
        dtype=torch.float16,
        config=config(),
    )
    out = run(plan, batch.q[start:], batch.k_cache, batch.v_cache)
    assert relative_error(out, batch.reference()[start:]) < TOLERANCE[torch.float16]


sequences = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 40)), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    lens=sequences,
    ratio=st.sampled_from([1, 2, 3, 5, 7, 8, 17]),
    kv_heads=st.integers(1, 2),
    head_size=st.sampled_from([16, 24, 32, 33]),
    block_size=st.sampled_from([1, 3, 8, 16, 24, 64]),
    block_m=st.sampled_from([16, 32, 64]),
    tile_size=st.sampled_from([16, 32, 64]),
    seed=st.integers(0, 99),
)
def test_any_batch(lens, ratio, kv_heads, head_size, block_size, block_m, tile_size, seed):
    query_lens = [query for query, _ in lens]
    context_lens = [query + cached for query, cached in lens]
    launch = config(block_m, tile_size)
    check((query_lens, context_lens), launch, ratio, kv_heads, head_size, block_size, torch.float16, seed)
