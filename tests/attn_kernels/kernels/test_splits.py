"""Splits of contexts: how many there are, on the host and on the device, and that no result depends on it."""

import math
import random
from collections import defaultdict
from dataclasses import replace

import pytest
import torch
from captured_server import HEADS, MODEL, Server, batch_of, random_lens
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import (
    FP8,
    assert_close,
    forget_choices,
    make_config,
    number,
    random_batch,
    record_launches,
    scores,
)

from attn_kernels import Lengths, Model
from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.kernels import qblock, splits
from attn_kernels.kernels.splits import find_splits
from attn_kernels.testing.poisoned import run_poisoned

MULTIPROCESSORS = 3  # of the interpreter
SPLIT_KEYS = 3  # its place in a plan's workspace
MANY = 1 << 40

# The interpreter also computes the rows of a tile that hold no query, and the infinite powers of a soft cap.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow) encountered:RuntimeWarning")


@pytest.fixture
def cost(monkeypatch):
    """A function that sets ROW_COST; what is bound to launches before is forgotten."""

    def set_cost(value):
        forget_choices()
        monkeypatch.setattr(splits, "ROW_COST", value)

    yield set_cost
    forget_choices()


@pytest.mark.parametrize("names, fp8", [("window=37 sinks", False), ("softcap alibi scales=tensor", True)])
def test_replays_split_each_batch_by_its_own_lengths(names, fp8, cost):
    """``split_keys_kernel`` finds as many keys as docs/kernels.md says, whatever the maxima."""
    options, cache_dtype = scores(HEADS, names), FP8 if fp8 else None
    found, rng = set(), random.Random(names)
    for value in (0.01, 0.3):
        cost(value)
        server = Server(make_config(), cache_dtype=cache_dtype, **options)
        assert server.plan.num_splits > 1
        for seed in range(4):
            batch = batch_of(*random_lens(rng), seed, cache_dtype)
            if len(batch.q):
                assert_close(server.replay(batch), batch.reference(**options))
                (keys,) = server.plan.workspace[SPLIT_KEYS].tolist()
                assert abs(keys - expected_keys(batch, MODEL, 16, server.plan.lengths.max_query_len)) <= 1
                found.add(keys)
    assert len(found) > 4


def expected_keys(batch, model, block_m, max_query_len):
    pairs = [(q, k) for q, k in zip(batch.query_lens, batch.context_lens, strict=True) if q]
    longest = max(k for _, k in pairs)
    block_q = block_m // model.gqa_group_size
    q_blocks = sum(-(-q // block_q) for q, _ in pairs)
    rows = q_blocks * block_m * model.num_kv_heads
    keys = math.sqrt(splits.ROW_COST * longest * rows / MULTIPROCESSORS)
    if longest < splits.LEAST_SPLITS * keys:
        return longest
    if max_query_len > MAX_DRAFT or sum(k for _, k in pairs) < splits.LEAST_EVEN * len(pairs) * longest:
        return keys
    wave = splits.Wave.of(make_config(), model, MULTIPROCESSORS)
    return max(keys, longest / wave.splits(q_blocks, longest))


@pytest.mark.parametrize(
    "num_seqs, query_len, window",
    [(3, 1, None), (3, 1, 70), (3, 7, None), (3, 64, 90), (36, 1, None), (36, 2, 70)],  # 36 take whole waves
)
@pytest.mark.parametrize("equal", [True, False], ids=["equal", "unequal"])
def test_the_device_finds_the_keys_of_the_host(num_seqs, query_len, window, equal, cost):
    """For batches of exactly the lengths that the plan was made for."""
    cost(0.01)
    model = Model(12, 2, 16, 16, torch.float16, sliding_window=window)
    for context in (100, 300, 1000):
        seen = min(context, window or context)  # of a longer context, the host does not know that less counts
        shorter = (max(query_len, seen // 2), query_len) * (num_seqs // 2)
        contexts = (context,) * num_seqs if equal else (seen, *shorter)[:num_seqs]
        batch = random_batch(((query_len,) * num_seqs, contexts), ratio=6, kv_heads=2, head_size=16)
        eager, captured = (
            batch.plan(config=make_config(), model=model, for_capture=graph) for graph in (False, True)
        )
        fewer = equal and query_len <= MAX_DRAFT  # while the graph has room for contexts that differ
        assert captured.num_splits > 1
        assert captured.num_splits == eager.num_splits > 1 or fewer
        assert captured.num_splits >= eager.num_splits
        assert abs(captured.workspace[SPLIT_KEYS].item() - eager.split_keys) <= 1


sizes = st.fixed_dictionaries(
    {
        "block_m": st.sampled_from([16, 32, 64, 128]),
        "tile_size": st.sampled_from([16, 32, 64, 128]),
        "ratio": st.sampled_from([1, 3, 4, 7, 16, 71, 200]),
        "kv_heads": st.sampled_from([1, 2, 8]),
        "num_seqs": st.integers(1, 300),
        "query_len": st.one_of(st.integers(1, 8), st.integers(1, 5000)),
        "cached": st.integers(0, 1_000_000),
        "multiprocessors": st.sampled_from([3, 20, 132]),
        "room": st.sampled_from([0, 1000, 1 << 18, MANY]),
    }
)


def found(case, window=None, *, equal=False, **changes):
    c = {**case, **changes}
    config = make_config("qblock", c["block_m"], c["tile_size"])
    model = Model(c["ratio"] * c["kv_heads"], c["kv_heads"], 64, 16, torch.float16, sliding_window=window)
    lengths = Lengths.of([c["query_len"]] * c["num_seqs"], [c["query_len"] + c["cached"]] * c["num_seqs"])
    if not equal:
        lengths = lengths._replace(num_kv_tokens=0)  # the mean is far below the longest, or the window
    return find_splits(config, model, lengths, c["multiprocessors"], c["room"])


@settings(deadline=None)
@given(sizes, st.integers(1, 200_000))
def test_a_number_of_splits(case, window):
    num_splits, keys = found(case)
    longest = case["query_len"] + case["cached"]
    partials = case["num_seqs"] * case["query_len"] * case["ratio"] * case["kv_heads"]
    assert num_splits == 1 or num_splits <= min(splits.MAX_SPLITS_OF_FEW, case["room"] // partials)
    assert num_splits <= -(-longest // case["tile_size"]), "a split holds a tile at least"
    heads = min(case["ratio"], case["block_m"])
    q_blocks = case["num_seqs"] * -(-case["query_len"] // (case["block_m"] // heads))
    rows = q_blocks * case["block_m"] * -(-case["ratio"] // heads) * case["kv_heads"]
    written = splits.ROW_COST * rows * longest / case["multiprocessors"]  # with one key in each split
    if longest < splits.LEAST_SPLITS * math.sqrt(written):
        assert (num_splits, keys) == (1, longest)
    if num_splits > 1:
        best = min(range(max(1, keys - 2), keys + 3), key=lambda k: k + written / k)
        assert abs(best - keys) <= 1, "other keys take longer"
    assert found(case, window) == found(case, cached=min(longest, window) - case["query_len"])
    case["room"] = MANY
    num_splits = found(case)[0]
    assert found(case, cached=4 * longest - case["query_len"])[0] >= num_splits, "of longer contexts"
    assert found(case, num_seqs=-(-case["num_seqs"] // 4))[0] >= num_splits, "with fewer rows"


@settings(deadline=None)
@given(sizes, st.integers(1, 8))
def test_decodes_of_equal_contexts_have_no_more_splits(case, query_len):
    """Fewer only where programs fill one wave or whole waves, or all fit in one and contexts are short."""
    case |= {"query_len": query_len, "room": MANY}
    (fewer, keys), (of_unequal, keys_of_unequal) = (found(case, equal=equal) for equal in (True, False))
    assert fewer <= of_unequal and keys >= keys_of_unequal
    if keys == keys_of_unequal:  # then fewer only because all contexts are long
        assert fewer in (of_unequal, splits.MAX_SPLITS) or fewer > splits.MAX_SPLITS
        return
    longest, heads = case["query_len"] + case["cached"], min(case["ratio"], case["block_m"])
    q_blocks = case["num_seqs"] * -(-query_len // (case["block_m"] // heads))
    programs = q_blocks * -(-case["ratio"] // heads) * case["kv_heads"]  # without splits
    most_held = 6 if case["block_m"] == 16 else 1  # by a multiprocessor
    if programs > most_held * case["multiprocessors"]:
        assert fewer == 1
        waves = [programs / (held * case["multiprocessors"]) for held in range(1, most_held + 1)]
        assert any(wave >= 0.9 * math.ceil(wave) for wave in waves)
    elif fewer > 1 or longest > 4096:
        # Splits that have so many keys, before they are rounded to whole tiles.
        wanted = range(math.ceil(longest / (keys + 0.5)), math.floor(longest / (keys - 0.5)) + 1)
        each = [programs * splits / case["multiprocessors"] for splits in wanted]
        assert any(number >= 0.9 * math.ceil(number) for number in each)


@pytest.mark.parametrize(
    "contexts, kv_heads, head_size, splits_of_each",
    [
        # Equal contexts: 64 sequences take 1.3 waves, and 32 of heads of 256 two.
        *(([8192] * count, 8, 128, splits) for count, splits in ((1, 32), (8, 4), (16, 2), (32, 1), (64, 7))),
        ([8192] * 32, 8, 256, 1),
        # A few long contexts have as many splits as make enough programs: one for each multiprocessor.
        ([1 << 17], 1, 128, 132),
        ([1 << 17], 2, 128, 66),
        ([1 << 17] * 2, 1, 128, 66),
        ([100_000, 10_000], 1, 128, 120),  # and 12
        ([1 << 17] * 4, 1, 128, splits.MAX_SPLITS),
        ([200_000, *[2000] * 50], 1, 128, 88),
        ([1 << 17], 8, 128, 33),
    ],
)
def test_splits_of_decodes_on_132_multiprocessors(contexts, kv_heads, head_size, splits_of_each):
    """With tiles of 64 keys; 4 query heads share a KV head where contexts are equal, and 8 elsewhere."""
    model = Model((4 if contexts[0] == 8192 else 8) * kv_heads, kv_heads, head_size, 16, torch.bfloat16)
    lengths = Lengths.of([1] * len(contexts), contexts)
    config = make_config("qblock", 16, 64, num_warps=4, num_stages=3)
    assert find_splits(config, model, lengths, 132, MANY)[0] == splits_of_each


@pytest.mark.parametrize("context", [290, 240])  # beside two short ones
def test_programs_share_a_context_evenly_and_write_the_result_of_one_split_themselves(
    context, cost, monkeypatch
):
    cost(0.2)
    launches = record_launches(monkeypatch)
    batch = random_batch(((1, 3, 1, 0, 20), (context, 20, 144, 7, 25)), ratio=2, kv_heads=2, head_size=16)
    ranges = record_ranges(monkeypatch)
    plan = batch.plan(config=make_config())
    assert_close(run_poisoned(batch, plan), batch.reference())
    assert [launch.kernel for launch in launches] == ["qblock_kernel", "reduce_kernel"]
    starts, rows = batch.cu_seqlens_q.tolist(), (len(batch.q), 4, plan.num_splits)
    stored = ~plan.workspace[1].isnan()[: math.prod(rows)].view(rows)
    expected, several = torch.zeros_like(stored), set()
    for (seq, kv_head, first_query), parts in ranges.items():
        parts.sort()
        visible = batch.context_lens[seq] - batch.query_lens[seq]
        visible += min(first_query + 8, batch.query_lens[seq])
        assert [start for start, _ in parts] == [0, *(stop for _, stop in parts[:-1])]
        assert parts[-1][1] == visible
        tiles = [-(-(stop - start) // 16) for start, stop in parts]
        split_tiles = max(1, math.floor(plan.split_keys / 16 + 0.5))
        most = min(max(1, math.floor(math.ceil(visible / 16) / split_tiles + 0.5)), plan.num_splits)
        longest = math.ceil(math.ceil(visible / 16) / most)
        assert tiles[:-1] == [longest] * (len(tiles) - 1) and 1 <= tiles[-1] <= longest
        if len(parts) > 1:
            first = starts[seq] + first_query
            stop = min(first + 8, starts[seq + 1])
            expected[first:stop, 2 * kv_head : 2 * kv_head + 2, : len(parts)] = True
            several.add(seq)
    assert torch.equal(stored, expected)
    assert several == {0, 2}


def record_ranges(monkeypatch):
    """The keys that programs read, as (start, stop), by sequence, KV head and first query of a Q-Block."""
    ranges = defaultdict(list)
    original = qblock.attend_cache

    def attend_cache(block, queries, cache, scoring, scales, start, stop, const):
        ranges[tuple(map(number, (block.seq, block.kv_head, block.first_query)))].append(
            (number(start), number(stop))
        )
        return original(block, queries, cache, scoring, scales, start, stop, const)

    monkeypatch.setattr(qblock, "attend_cache", attend_cache)
    return ranges


@pytest.mark.parametrize("for_capture", [False, True])
def test_contexts_that_are_one_split_need_one_launch(for_capture, monkeypatch):
    launches = record_launches(monkeypatch, once_a_plan=True)
    batch = random_batch(((1, 20), (90, 90)))
    plan = batch.plan(config=make_config(), for_capture=for_capture)
    assert plan.num_splits == 1
    assert_close(run_poisoned(batch, plan), batch.reference())
    assert [launch.kernel for launch in launches] == ["qblock_kernel"]


def test_a_plan_serves_layers_of_different_features(cost):
    """Layers use the plan's workspace one after the other, and none sees what another left there."""
    cost(0.01)
    batch = random_batch(((2, 1), (40, 150)), ratio=2, head_size=16)
    for causal in (True, False):
        plan = batch.plan(config=make_config(), model=replace(batch.model, causal=causal))
        assert plan.num_splits > 3
        for names in ("", "window=3", "noncausal", "sinks", "noncausal after=1", "softcap", ""):
            options = scores(2, names)
            assert_close(run_poisoned(batch, plan, **options), batch.reference(**options))
