"""New keys and values from contiguous tensors instead of the cache."""

import pytest
import torch
from kernel_cases import FP8, NAMES, assert_close, make_config, random_batch, strided
from kernel_cases import scores as score_options

from attn_kernels.testing.poisoned import run_poisoned

MIXED = ((9, 4, 1, 0, 3), (9, 37, 50, 20, 19))


def take_new(batch):
    """``new_keys_and_values`` in the dtype of q."""
    return [new.to(batch.q.dtype) for new in batch.new_keys_and_values()]


def check_new(batch, new, expected, config, **options):
    """The result with new keys and values, which are poisoned in the cache."""
    out = run_poisoned(batch, batch.plan(config=config), k_new=new[0], v_new=new[1], **options)
    assert_close(out, expected)


@pytest.mark.parametrize(
    "names, tile_size, block_m, fp8",
    [
        ("", 16, 16, False),
        ("", 32, 16, False),
        ("window=5", 16, 16, False),
        ("window=3 softcap alibi sinks", 16, 16, False),
        ("window=30 alibi sinks", 16, 64, False),
        ("softcap sinks=half", 64, 32, False),
        ("alibi", 16, 16, True),
    ],
)
def test_prefix_prefill_reads_new_tokens_from_the_new_tensors_only(names, tile_size, block_m, fp8):
    batch = random_batch(MIXED, ratio=2, kv_heads=2, head_size=16, cache_dtype=FP8 if fp8 else None)
    options = score_options(4, names)
    expected = batch.reference(**options)
    check_new(batch, take_new(batch), expected, make_config("prefix_prefill", block_m, tile_size), **options)


def test_prompts_longer_than_a_block_and_a_tile():
    batch = random_batch(((40, 20), (40, 61)), ratio=1, kv_heads=1, head_size=16)
    expected = {window: batch.reference(sliding_window=window) for window in (None, 18, 33)}
    new = take_new(batch)
    for window, reference in expected.items():
        check_new(batch, new, reference, make_config("prefix_prefill"), sliding_window=window)


@pytest.mark.parametrize("window", [1, 2, 17])
def test_no_cached_key_before_the_window_is_read(window):
    batch = random_batch(((2, 40), (20, 61)), ratio=1, kv_heads=1, head_size=16)
    expected = batch.reference(sliding_window=window)
    new = take_new(batch)
    for seq, (queries, keys) in enumerate(zip(batch.query_lens, batch.context_lens, strict=True)):
        for key in range(keys - queries - window + 1):
            block_size = batch.v_cache.shape[1]
            page = batch.block_table[seq, key // block_size]
            batch.v_cache[page, key % block_size] = torch.nan
    check_new(batch, new, expected, make_config("prefix_prefill"), sliding_window=window)


@pytest.mark.parametrize("scales", ["scales", "scales=tensor"])
def test_scales_are_of_cached_keys_and_values_only(scales):
    batch = random_batch(((3, 2), (30, 2)), ratio=2, head_size=16, cache_dtype=FP8)
    options = score_options(2, scales)
    expected = batch.reference(**options)
    k_new, v_new = take_new(batch)
    new = (k_new * 0.4, v_new * 3.0)  # scaled, as the cache's would be
    check_new(batch, new, expected, make_config("prefix_prefill"), **options)


@pytest.mark.parametrize("padding", [1, 8])
def test_strided_new_tensors(padding):
    batch = random_batch(MIXED, ratio=2, kv_heads=2, head_size=16)
    expected = batch.reference()
    k_new, v_new = take_new(batch)
    k_new = strided(strided(k_new, 1, 2), 2, padding)
    v_new = strided(v_new.transpose(0, 1).contiguous(), 2, padding).transpose(0, 1)
    check_new(batch, (k_new, v_new), expected, make_config("prefix_prefill"))


def test_split_reads_them_in_its_prefill_kernel_only():
    batch = random_batch(MIXED, ratio=2, head_size=16)
    expected, caches = batch.reference(), (batch.k_cache.clone(), batch.v_cache.clone())
    k_new, v_new = take_new(batch)
    seq, token = 2, 13  # the one sequence in decode
    page, slot = batch.block_table[seq, 49 // 16].long(), 49 % 16
    for cache, before, new in zip((batch.k_cache, batch.v_cache), caches, (k_new, v_new), strict=True):
        cache[page, slot] = before[page, slot]
        new[token] = torch.nan
    check_new(batch, (k_new, v_new), expected, make_config("split"))


@pytest.mark.parametrize("variant", [name for name in NAMES if name not in ("prefix_prefill", "split")])
def test_other_variants_read_the_cache(variant):
    batch = random_batch(((3, 1), (20, 7)), ratio=2, head_size=16)
    new = torch.full((4, 1, 16), torch.nan, dtype=torch.float16)
    out = run_poisoned(batch, batch.plan(config=make_config(variant)), k_new=new, v_new=new)
    assert_close(out, batch.reference())
