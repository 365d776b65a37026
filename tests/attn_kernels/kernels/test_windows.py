"""Keys before a sliding window are neither read nor computed."""

import pytest
import torch
from kernel_cases import NAMES, assert_close, make_config, number, random_batch

from attn_kernels.kernels import online_softmax
from attn_kernels.testing.poisoned import GARBAGE_PAGE, run_poisoned

LENS = ((3, 1), (150, 101))


def forget(batch, window):
    """Poison the keys, values and page ids before all windows of a sequence."""
    block_size = batch.k_cache.shape[1]
    forgotten = 0
    for seq, (query_len, context_len) in enumerate(zip(batch.query_lens, batch.context_lens, strict=True)):
        first = max(context_len - query_len - window + 1, 0)
        for key in range(first):
            page = batch.block_table[seq, key // block_size].long()
            for cache in (batch.k_cache, batch.v_cache):
                cache[page, key % block_size] = torch.nan
        forgotten += first // block_size
    for seq, (query_len, context_len) in enumerate(zip(batch.query_lens, batch.context_lens, strict=True)):
        first = max(context_len - query_len - window + 1, 0)
        batch.block_table[seq, : first // block_size] = GARBAGE_PAGE
    return forgotten


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize(
    "window, block_size, tile_size", [(1, 8, 16), (20, 16, 16), (33, 24, 32), (70, 16, 64), (200, 8, 16)]
)
def test_nothing_left_of_the_window_is_used(variant, window, block_size, tile_size):
    batch = random_batch(LENS, ratio=1, head_size=16, block_size=block_size)
    expected = batch.reference(sliding_window=window)
    plan = batch.plan(config=make_config(variant, tile_size=tile_size))  # before page ids are out of range
    assert bool(forget(batch, window)) == (window < 200)
    assert_close(run_poisoned(batch, plan, sliding_window=window), expected)


@pytest.mark.parametrize("variant", NAMES)
@pytest.mark.parametrize("window", [1, 15, 16, 17, 31, 32, 33])
def test_edges_of_windows_around_a_tile(variant, window):
    """One key more or less changes the result: its score dominates, and its value is large."""
    context_len = 40
    batch = random_batch(((1,), (context_len,)), ratio=1, head_size=16)
    pages = batch.block_table[0].long()
    for key, value in ((context_len - window, 1000.0), (context_len - window - 1, -1000.0)):
        batch.v_cache[pages[key // 16], key % 16] = value
    out = run_poisoned(batch, batch.plan(config=make_config(variant)), sliding_window=window)
    assert (out > 0).all(), "the key before the window is seen, or the window's first is not"
    assert_close(out, batch.reference(sliding_window=window))


@pytest.mark.parametrize("variant", NAMES)
def test_no_tile_is_visited_that_no_row_sees(variant, monkeypatch):
    visits = []
    original = online_softmax.tile_pointers

    def tile_pointers(*arguments):
        tile = dict(zip(original.arg_names, arguments, strict=True))["tile_start"]
        visits.append(number(tile))
        return original(*arguments)

    monkeypatch.setattr(online_softmax, "tile_pointers", tile_pointers)
    batch = random_batch(((1,), (100,)), ratio=1, head_size=16)
    for window, tiles in (
        (1, [96]),
        (4, [96]),
        (5, [80, 96]),
        (37, [48, 64, 80, 96]),
        (None, range(0, 100, 16)),
    ):
        visits.clear()
        run_poisoned(batch, batch.plan(config=make_config(variant)), sliding_window=window)
        assert sorted(visits) == sorted([*tiles, *tiles]), "once for K and once for V"
