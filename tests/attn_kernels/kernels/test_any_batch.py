"""Any batch with any options, however it is planned, against float64; all else is poisoned."""

import math
import random
from contextlib import ExitStack
from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from kernel_cases import FP8, assert_close, checking_overflows, make_config, random_batch, ranges_of, scores
from launch_cases import hide

from attn_kernels import Lengths, Parts, run
from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.kernels import arguments, qblock, splits
from attn_kernels.planning import plan as plan_module
from attn_kernels.testing.poisoned import poison_workspace

HOPPER = make_config("qblock", 128, 64, num_warps=8, tma=1)  # launches through pointers here
VALUES = {  # the first ones are those of examples
    "ratio": (2, 1, 3, 4, 7, 17),
    "kv_heads": (2, 1),
    "head_size": (16, 1, 33, 40, 80, 128, 256, 320),
    "block_size": (40, 1, 8, 16, 24, 64, 136),
    "variant": ("qblock", "qblock", "stream_k", "invariant"),
    "block_m": (16, 32, 64, 128),
    "tile_size": (16, 32, 64, 256),
    "prompts": (make_config("qblock", 32), make_config("qblock", 16, 64), HOPPER),  # if planned apart
    "dtype": (torch.float16, torch.bfloat16),
    "fp8": (False, True),
    "window": ("", "", "window=1", "window=7", "window=13", "window=37", f"window={2**31 - 1}"),
    "noncausal": ("", "noncausal", "noncausal after=0", "noncausal after=5"),
    "softcap": ("", "softcap"),
    "alibi": ("", "alibi"),
    "sinks": ("", "sinks", "sinks=half", "sinks=extreme"),
    "scales": ("", "scales", "scales=tensor"),
    "ranges": (False, True),
    "lse": (True, False),
    "plan": ("whole", "for a graph", "in parts"),
    "cost": (0.001, 0.01, 0.1, 3.0),  # many splits, or whole contexts
    "multiprocessors": (3, 132),
    "cache_bytes": (1 << 25, 1 << 10),  # of the L2: heads together, or one after the other
    "overflows": (True, False, False),  # whether overflows of int32 are errors
    "converts": (True, False),  # whether the device converts fp8; else the kernel decodes its bits
    "gap": (0, 0, 1, 8),  # elements between the rows of strided tensors
    "seed": range(100),
}
WORDS = ("window", "noncausal", "softcap", "alibi", "sinks", "scales")
PLAIN = {name: values[0] for name, values in VALUES.items()}
# Of each sequence: queries, keys before them, and bidirectional ranges.
NAMED = [
    ([], PLAIN),
    ([(0, 5, []), (0, 0, []), (0, 17, [])], PLAIN),
    ([(20, 0, []), (1, 30, []), (1, 31, []), (1, 32, [])], PLAIN),  # end before, at and after a tile
    ([(1, 4 * number, []) for number in range(9)], PLAIN),
    # More ranges than are read at a time.
    ([(17, 3, [(0, 0)] * 18 + [(5, 15), (2, 9)])], PLAIN | {"ranges": True}),
    ([(1, 64, []), (2, 70, [])], PLAIN | {"ratio": 65, "kv_heads": 1, "head_size": 512}),
    ([(4, 33, []), (1, 49, [])], PLAIN | {"head_size": 512, "dtype": torch.bfloat16, "fp8": True}),
]
DRAWN, MOST_TILES, MOST_PRODUCTS = 80, 40, 11_000_000


def draw(seed):
    """Up to three sequences and a case, that do not take the interpreter long."""
    rng = random.Random(seed)
    while True:
        case = {name: rng.choice(values) for name, values in VALUES.items()}
        sequences = [draw_sequence(rng) for _ in range(rng.choice((1, 2, 3)))]
        rows = [case["kv_heads"] * case["ratio"] * query / case["block_m"] for query, *_ in sequences]
        keys = [max(0, query + cached) / case["tile_size"] for query, cached, _ in sequences]
        tiles = sum(math.ceil(row) * math.ceil(key) for row, key in zip(rows, keys, strict=True))
        products = tiles * case["block_m"] * case["tile_size"] * case["head_size"]
        if tiles <= MOST_TILES and products <= MOST_PRODUCTS:
            return sequences, case


def draw_sequence(rng):
    places = (*range(-3, 111), 2**31 - 1)  # also before and behind all keys
    ranges = [rng.choices(places, k=2) for _ in range(rng.choice((0, 1, 3, 20)))]
    cached = rng.choice((-99, -6, 0, 3, 30, 130, 300))  # fewer than none: some queries lack keys
    return rng.choice((0, 1, 1, 2, 5, 17, 35)), cached, ranges


def any_parts(rng, query_lens, context_lens):
    """Parts that are right, or contradict the batch, but no more than the host can notice."""
    whole, right = Lengths.of(query_lens, context_lens), Parts.of(query_lens, context_lens)
    if rng.random() < 0.5 and all(part.num_query_tokens for part in right):
        return right
    count, longest = rng.randint(1, whole.num_seqs), rng.randint(1, min(MAX_DRAFT, whole.max_query_len))
    tokens = rng.randint(1, min(count * longest, whole.num_query_tokens))
    decodes = Lengths(count, tokens, min(longest, tokens), rng.randint(1, max(1, whole.max_seq_len)), 1)
    rest = (whole.num_seqs - count, whole.num_query_tokens - tokens)
    return Parts(decodes, Lengths(*rest, whole.max_query_len, 1, max(0, whole.num_kv_tokens - 1)))


@pytest.mark.parametrize("sequences, case", [*NAMED, *map(draw, range(DRAWN))])
def test_any_batch(sequences, case):
    """Also sequences of more queries than keys, and parts that are not what the host says."""
    queries, contexts = [query for query, *_ in sequences], [max(0, q + cached) for q, cached, _ in sequences]
    heads, dtype, rng = case["ratio"] * case["kv_heads"], case["dtype"], random.Random(case["seed"])
    layout = {name: case[name] for name in ("ratio", "kv_heads", "head_size", "block_size", "dtype", "seed")}
    whole = random_batch((queries, contexts), **layout, cache_dtype=FP8 if case["fp8"] else None)
    options = scores(heads, " ".join(case[name] for name in WORDS), dtype)
    if case["ranges"] and sequences:
        options["bidirectional_ranges"] = ranges_of(*(ranges for *_, ranges in sequences))
    window = options.get("sliding_window")
    batch = whole if window is None else hide(whole, window)
    lse, expected_lse = (torch.full((heads, len(batch.q)), torch.nan, dtype=t) for t in (None, torch.double))
    expected = whole.reference(lse=expected_lse, **options)
    with ExitStack() as patches:
        patches.enter_context(patch.object(splits, "ROW_COST", case["cost"]))
        patches.enter_context(patch.object(qblock, "L2_BYTES", case["cache_bytes"]))
        patches.enter_context(patch.object(arguments, "converts_e4m3", lambda device: case["converts"]))
        for module in (plan_module, splits):
            patches.enter_context(
                patch.object(module, "multiprocessors", lambda device: case["multiprocessors"])
            )
        if case["overflows"]:
            patches.enter_context(checking_overflows())
        config = make_config(case["variant"], case["block_m"], case["tile_size"])
        if case["plan"] == "in parts" and len(batch.q):
            plan = batch.plan_in_parts(config, case["prompts"], any_parts(rng, queries, contexts))
        else:
            plan = batch.plan(
                config=config,
                model=replace(batch.model, causal=False),
                for_capture=case["plan"] == "for a graph",
                check=False,
            )
        poison_workspace(plan)
        values = batch.v_cache.transpose(1, 2).contiguous().transpose(1, 2)  # slots behind heads
        tensors = [wide(tensor, case["gap"]) for tensor in (batch.q, batch.k_cache, values)]
        out = wide(torch.full_like(batch.q, torch.nan), case["gap"])
        assert run(plan, *tensors, out=out, lse=lse if case["lse"] else None, **options) is out
    assert_close(out, expected)
    assert not case["gap"] or (~out._base.isnan()).sum() == out.numel(), "wrote between the rows of out"
    if case["lse"]:
        torch.testing.assert_close(lse.double(), expected_lse, rtol=1e-4, atol=1e-4)


def wide(tensor, gap):
    """The same values as a slice of a wider tensor of NaN, as fused Q, K and V are."""
    if not gap:
        return tensor
    *others, rows, columns = tensor.shape
    room = torch.full((*others, rows + 3, columns + gap), torch.nan, dtype=tensor.dtype)
    return room[..., :rows, :columns].copy_(tensor)
