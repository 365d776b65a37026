"""Every feature against the float64 reference, with every byte that must not be used poisoned."""

import dataclasses

import pytest
import torch
from kernel_cases import FP8, assert_close, check, make_config, random_batch, strided
from kernel_cases import scores as score_options
from launch_cases import hide

import attn_kernels
from attn_kernels import run
from attn_kernels.testing.poisoned import GARBAGE_PAGE, run_poisoned

# The interpreter also computes the rows of a tile that hold no query, and the infinite powers of a soft cap.
pytestmark = [
    pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning"),
    pytest.mark.usefixtures("whole_and_split"),
]

BF16 = torch.bfloat16
WIDEST = 2**31 - 1
# (query lengths, context lengths): a chunk over cached context, decode, a sequence without query tokens, a
# short prompt.
MIXED = ((4, 1, 0, 2), (37, 50, 20, 2))
DECODE = ((1, 1), (1, 70))
PROMPT = ((9,), (9,))
SPECULATIVE = ((5, 2, 0), (70, 33, 0))

# Each value of each column meets most values of the others.
#   lengths, query heads a KV head, KV heads, head size, page, tile, block_m, dtype, fp8, scores
CASES = {
    "plain": (MIXED, 4, 1, 32, 16, 16, 16, None, False, ""),
    "window of 1": (MIXED, 3, 1, 16, 24, 32, 16, None, False, "window=1"),
    "window below a tile": (SPECULATIVE, 1, 2, 40, 8, 16, 32, BF16, False, "window=11 sinks"),
    "window of tiles": (MIXED, 1, 2, 64, 16, 16, 16, None, True, "window=33 scales"),
    "widest window": (MIXED, 4, 1, 8, 136, 64, 16, None, False, f"window={WIDEST} alibi"),
    "soft cap": (SPECULATIVE, 3, 1, 32, 1, 16, 16, BF16, True, "softcap scales=tensor"),
    "alibi": (DECODE, 8, 1, 128, 48, 32, 16, None, False, "alibi"),
    "sinks": (MIXED, 4, 1, 80, 1024, 128, 64, BF16, False, "sinks=half"),
    "fp8": (DECODE, 7, 1, 256, 32, 32, 32, BF16, True, "scales=tensor"),
    "wide": (MIXED, 4, 1, 320, 16, 16, 16, None, False, "window=33 sinks"),
    "wide in halves": (SPECULATIVE, 8, 1, 320, 16, 32, 64, BF16, False, "softcap alibi"),
    "wide fp8 in halves": (MIXED, 7, 1, 512, 32, 16, 64, BF16, True, "window=13 sinks scales=tensor"),
    "wide group of halves": (DECODE, 65, 1, 512, 16, 16, 64, None, False, ""),
    "fp8 without scales": (PROMPT, 1, 1, 1, 8, 16, 16, None, True, ""),
    "capped window": (PROMPT, 2, 2, 33, 64, 16, 128, None, False, "softcap window=4"),
    "capped alibi": (DECODE, 3, 2, 16, 16, 64, 16, BF16, False, "softcap alibi sinks"),
    "all": (MIXED, 4, 1, 24, 24, 16, 16, None, True, "window=13 softcap alibi sinks=half scales=tensor"),
    "all, again": (SPECULATIVE, 7, 1, 64, 8, 32, 64, BF16, True, "window=20 softcap alibi sinks scales"),
}


@pytest.mark.parametrize("case", CASES)
def test_features(case):
    lens, ratio, kv_heads, head_size, page, tile, block_m, dtype, fp8, names = CASES[case]
    dtype = dtype or torch.float16
    batch = random_batch(
        lens, ratio, kv_heads, head_size, block_size=page, dtype=dtype, cache_dtype=FP8 if fp8 else None
    )
    check(batch, make_config("qblock", block_m, tile), **score_options(ratio * kv_heads, names, dtype))


AROUND = ((20, 1, 1, 1), (20, 31, 32, 33))  # contexts that end just before, at and after a tile
EDGES = {
    "large tiles": (AROUND, make_config("qblock", 128, 256)),
    "prompts of several blocks": (AROUND, make_config("qblock", 16, 32)),
    "no query tokens": (((0, 0, 0), (5, 0, 17)), make_config()),
    "empty": (((0,), (0,)), make_config()),
    "no sequences": (((), ()), make_config()),
    "holes": (((0, 1, 0, 0, 1, 0), (0, 40, 3, 0, 1, 33)), make_config()),
    "decode": (((1,) * 9, tuple(range(1, 34, 4))), make_config()),
    "around a tile": (((2, 2, 2, 2), (15, 16, 17, 18)), make_config()),
}


@pytest.mark.parametrize("lens, config", EDGES.values(), ids=EDGES)
def test_batches_at_the_edge(lens, config):
    check(random_batch(lens, ratio=1, kv_heads=2, head_size=16, block_size=40), config)


def test_groups_of_heads_run_in_turn_where_the_cache_does_not_hold_all(monkeypatch):
    monkeypatch.setattr("attn_kernels.kernels.qblock.L2_BYTES", 3 * 2 * 50 * 16 * 2)
    check(random_batch(((9, 1, 0), (9, 50, 3)), ratio=2, kv_heads=4, head_size=16), make_config())


@pytest.mark.parametrize(
    "factor, options",
    [(1, {"softmax_scale": 1e-3}), (1, {"softmax_scale": 1}), (300, {}), (300, {"softcap": 30.0})],
)
def test_scores_of_any_magnitude(factor, options):
    batch = random_batch(((1, 1), (19, 40)), ratio=1, head_size=16)
    batch.q.mul_(factor)
    check(batch, make_config(), **options)


@pytest.mark.parametrize("factor", [1e-20, 1e6])
def test_queries_outside_the_range_of_fp16_meet_fp8_keys(factor):
    batch = random_batch(((1, 1), (19, 40)), ratio=2, kv_heads=1, head_size=32, dtype=BF16, cache_dtype=FP8)
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


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("sinks", [(-200.0, 0.0, 1.0, 200.0), (-torch.inf, 0.0, 1.0, -torch.inf)])
def test_extreme_sinks(sinks, window):
    """Also beside tiles that a row does not see."""
    batch = random_batch(((40, 1), (90, 60)), ratio=2, kv_heads=2, head_size=16)
    check(batch, make_config("qblock", block_m=64), sinks=torch.tensor(sinks), sliding_window=window)


def test_tokens_of_no_sequence_are_left_alone():
    """The rest of a padded batch, as in a captured graph."""
    batch = random_batch(((3, 5), (20, 9)), ratio=2, head_size=16)
    padded = dataclasses.replace(batch, q=torch.cat([batch.q, torch.full((4, 2, 16), torch.nan)]).half())
    plan = padded.plan(config=make_config(), max_query_len=12, max_seq_len=20, check=False)
    out = run_poisoned(padded, plan)
    assert_close(out[:8], batch.reference())
    assert out[8:].isnan().all()


@pytest.mark.parametrize("padding", [1, 8])
def test_strided_tensors(padding):
    batch = random_batch(((2, 1, 0), (9, 50, 20)), ratio=2, kv_heads=2, head_size=16)
    q = strided(strided(batch.q, 1, 3), 2, padding)
    k_cache = strided(strided(batch.k_cache, 3, padding), 1, 2)
    v_cache = strided(batch.v_cache.permute(0, 2, 1, 3).contiguous(), 3, padding).permute(0, 2, 1, 3)
    out = strided(torch.full_like(batch.q, torch.nan), 1, 2)
    plan = batch.plan(config=make_config())
    assert run(plan, q, k_cache, v_cache, out=out) is out
    assert_close(out, batch.reference())
    assert torch.isnan(out._base[:, 4:]).all(), "wrote between the rows of out"


def test_a_part_of_a_batch_with_views_of_its_tensors():
    """Outputs of other tokens in the same tensor stay as they were."""
    batch = random_batch(MIXED, ratio=2, head_size=16)
    start, stop = batch.query_lens[0], len(batch.q) - batch.query_lens[-1]
    plan = attn_kernels.plan(
        (batch.cu_seqlens_q - start)[1:-1],
        batch.seqused_k[1:-1],
        strided(batch.block_table, 1, 5, fill=GARBAGE_PAGE)[1:-1],
        attn_kernels.Model(2, 1, 16, 16, torch.float16),
        num_query_tokens=stop - start,
        max_query_len=1,
        max_seq_len=50,
        config=make_config(),
    )
    out = torch.full_like(batch.q, 7.0)
    run(plan, batch.q[start:stop], batch.k_cache, batch.v_cache, out=out[start:stop])
    assert_close(out[start:stop], batch.reference()[start:stop])
    assert (out[:start] == 7).all() and (out[stop:] == 7).all()


@pytest.mark.parametrize(
    "window, block_size, tile_size", [(1, 8, 16), (33, 24, 32), (70, 16, 64), (200, 8, 16)]
)
def test_nothing_left_of_the_window_is_used(window, block_size, tile_size):
    batch = random_batch(((3, 1), (150, 101)), ratio=1, head_size=16, block_size=block_size)
    expected = batch.reference(sliding_window=window)
    plan = batch.plan(config=make_config(tile_size=tile_size))  # before page ids are out of range
    hidden = hide(batch, window)
    assert torch.equal(batch.block_table, hidden.block_table) == (window == 200)
    batch.block_table.copy_(hidden.block_table)
    assert_close(run_poisoned(hidden, plan, sliding_window=window), expected)
