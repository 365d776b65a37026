"""Splits of contexts: how many there are, on the host and on the device, and that no result depends on it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_cases import assert_close, forget_choices, make_config, random_batch, record_launches
from schedules import tiles_per_split

from attn_kernels import Lengths, Model
from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.kernels import splits
from attn_kernels.kernels.splits import find_splits
from attn_kernels.testing.poisoned import run_poisoned

SPLIT_KEYS = 3  # its place in a plan's workspace
MANY = 1 << 40


@pytest.fixture
def cost(monkeypatch):
    """A function that sets ROW_COST; what is bound to launches before is forgotten."""

    def set_cost(value):
        forget_choices()
        monkeypatch.setattr(splits, "ROW_COST", value)

    yield set_cost
    forget_choices()


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


def found(case, window=None, **changes):
    c = {**case, **changes}
    config = make_config("qblock", c["block_m"], c["tile_size"])
    model = Model(c["ratio"] * c["kv_heads"], c["kv_heads"], 64, 16, torch.float16, sliding_window=window)
    lengths = Lengths.of([c["query_len"]] * c["num_seqs"], [c["query_len"] + c["cached"]] * c["num_seqs"])
    lengths = lengths._replace(num_kv_tokens=0)  # the mean is far below the longest, or the window
    return find_splits(config, model, lengths, c["multiprocessors"], c["room"])


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
def test_each_split_of_a_context_has_a_partial_result_and_a_single_one_none(context, cost):
    cost(0.2)
    batch = random_batch(((1, 3, 1, 0, 20), (context, 20, 144, 7, 25)), ratio=2, kv_heads=2, head_size=16)
    plan = batch.plan(config=make_config())
    assert_close(run_poisoned(batch, plan), batch.reference())
    rows = (len(batch.q), 4, plan.num_splits)
    stored = ~plan.workspace[1].isnan()[: math.prod(rows)].view(rows)
    expected = torch.zeros_like(stored)
    for seq, (query_len, context_len) in enumerate(zip(batch.query_lens, batch.context_lens, strict=True)):
        for first in range(0, query_len, 8):  # query tokens of a tile
            stop = min(first + 8, query_len)
            tiles = -(-(context_len - query_len + stop) // 16)
            count = -(-tiles // tiles_per_split(tiles, plan.split_keys, 16, plan.num_splits))
            tokens = slice(int(batch.cu_seqlens_q[seq]) + first, int(batch.cu_seqlens_q[seq]) + stop)
            expected[tokens, :, : count if count > 1 else 0] = True
    assert torch.equal(stored, expected)
    assert expected[:, 0, 0].tolist() == [True, *[False] * 3, True, *[False] * 20]


@pytest.mark.parametrize("for_capture", [False, True])
def test_contexts_that_are_one_split_need_one_launch(for_capture, monkeypatch):
    launches = record_launches(monkeypatch, once_a_plan=True)
    batch = random_batch(((1, 20), (90, 90)))
    plan = batch.plan(config=make_config(), for_capture=for_capture)
    assert plan.num_splits == 1
    assert_close(run_poisoned(batch, plan), batch.reference())
    assert [launch.kernel for launch in launches] == ["qblock_kernel"]
