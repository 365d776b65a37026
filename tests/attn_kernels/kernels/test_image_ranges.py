"""Tokens of a range, such as those of an image, also see each other's later keys."""

from unittest.mock import patch

import pytest
import torch
from captured_server import Server, batch_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import FP8, assert_close, check, make_config, random_batch, scores

from attn_kernels import run
from attn_kernels.kernels import splits
from attn_kernels.testing.poisoned import run_poisoned

# The interpreter also computes the rows of a tile that hold no query.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")


def ranges_of(*sequences):
    """The tensor of each sequence's ranges, padded with (0, 0)."""
    most = max(map(len, sequences))
    return torch.tensor(
        [[*ranges, *[(0, 0)] * (most - len(ranges))] for ranges in sequences], dtype=torch.int32
    ).view(len(sequences), most, 2)


positions = st.integers(-3, 110) | st.just(2**31 - 1)  # also before and behind all keys
sequences = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 17, 40]),  # queries
        st.sampled_from([0, 3, 30, 60]),  # keys before them
        st.lists(st.tuples(positions, positions), max_size=20),  # of which half end before they start
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=14, deadline=None, derandomize=True, database=None)
@given(
    sequences=sequences,
    window=st.sampled_from(["", "window=1", "window=7", "window=37"]),
    others=st.sampled_from(["", "softcap alibi sinks", "scales=tensor"]),
    ratio=st.sampled_from([1, 3]),
    page=st.sampled_from([8, 24, 64]),
    block_m=st.sampled_from([16, 64]),
    tile=st.sampled_from([16, 32]),
    fp8=st.booleans(),
    cost=st.sampled_from([0.001, 3.0]),  # many splits, or whole contexts
)
def test_any_ranges_of_any_batch(sequences, window, others, ratio, page, block_m, tile, fp8, cost):
    """Chunks may end inside a range: the keys behind a chunk are not there yet, and hold NaN here."""
    queries, before, ranges = zip(*sequences, strict=True)
    lens = queries, [sum(pair) for pair in zip(queries, before, strict=True)]
    batch = random_batch(lens, ratio, 2, 16, block_size=page, cache_dtype=FP8 if fp8 else None)
    with patch.object(splits, "ROW_COST", cost):
        config = make_config("qblock", block_m, tile)
        options = scores(2 * ratio, f"{window} {others}")
        check(batch, config, bidirectional_ranges=ranges_of(*ranges), **options)


@pytest.mark.parametrize("window", [None, 3])
def test_a_query_sees_the_keys_of_its_window_and_the_rest_of_its_range(window):
    """As in transformers' ``create_masks_for_vision_model``: window & (causal | same image)."""
    count, (start, end) = 12, (4, 9)
    batch = random_batch(((count,), (count,)), ratio=1, head_size=16)
    out = run_poisoned(
        batch,
        batch.plan(config=make_config()),
        bidirectional_ranges=ranges_of([(start, end)]),
        sliding_window=window,
    )
    p, k = torch.arange(count)[:, None], torch.arange(count)
    inside = (p >= start) & (p <= end) & (k >= start) & (k <= end)
    seen = (k > p - (window or count)) & ((k <= p) | inside)
    keys, values = (cache[batch.block_table[0, 0], :count] for cache in (batch.k_cache, batch.v_cache))
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(tensor.double().transpose(0, 1) for tensor in (batch.q, keys, values)), attn_mask=seen
    )
    assert_close(out, expected.transpose(0, 1))


@pytest.mark.parametrize("ranges", [[(0, 0)], [(5, 5), (9, 2)], [(200, 300)], []])
def test_ranges_that_no_query_lies_in_change_no_bit(ranges):
    batch = random_batch(((20, 1), (20, 50)), ratio=2, head_size=16)
    plan = batch.plan(config=make_config())
    plain = run_poisoned(batch, plan)
    out = run_poisoned(batch, plan, bidirectional_ranges=ranges_of(ranges, ranges))
    assert torch.equal(out, plain)


def test_replays_of_a_graph_read_the_ranges_that_memory_holds():
    config = make_config()
    ranges = torch.zeros(6, 2, 2, dtype=torch.int32)
    server = Server(config, bidirectional_ranges=ranges)
    for seed, (lens, filled) in enumerate(
        [
            (((9, 1), (60, 150)), [[(52, 70), (2, 40)], [(140, 190)]]),
            (((1, 11), (9, 11)), [[], [(0, 3), (5, 9)]]),
        ]
    ):
        batch = batch_of(*lens, seed=seed)
        ranges.zero_()
        ranges[:2] = ranges_of(*filled)
        expected = batch.reference(bidirectional_ranges=ranges[:2])
        assert_close(server.replay(batch), expected)


def test_a_mixed_batch_in_parts():
    """The decodes come first, so each part's sequences have the rows of their own numbers."""
    batch = random_batch(((1, 2, 30, 9), (40, 5, 70, 9)), ratio=2, head_size=16)
    ranges = ranges_of([(30, 60)], [(0, 4)], [(41, 55), (60, 90)], [])
    plan = batch.plan_in_parts(make_config(), make_config(block_m=32))
    out = run_poisoned(batch, plan, bidirectional_ranges=ranges)
    assert_close(out, batch.reference(bidirectional_ranges=ranges))


def test_plans_of_other_batches_share_the_launches(monkeypatch):
    """A step with another number of sequences checks and binds nothing again."""
    config = make_config()
    bound = []
    for count in (2, 3, 2):
        batch = random_batch(((9,) * count, (20,) * count), ratio=2, head_size=16)
        plan = batch.plan(config=config)
        ranges = ranges_of(*[[(3, 15)]] * count)
        out = run_poisoned(batch, plan, bidirectional_ranges=ranges)
        assert_close(out, batch.reference(bidirectional_ranges=ranges))
        bound.append(len(plan.launch_cache))
        with pytest.raises(ValueError, match="bidirectional_ranges"):
            run(plan, batch.q, batch.k_cache, batch.v_cache, bidirectional_ranges=ranges[1:].contiguous())
    assert len(set(bound)) == 1
