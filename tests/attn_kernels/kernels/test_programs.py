"""The kernels that a variant launches, their programs, and that each part of a batch is computed once."""

from collections import Counter

import pytest
import torch
from kernel_cases import assert_close, check, make_config, random_batch, record_calls, record_launches

from attn_kernels import run
from attn_kernels.kernels import prefix_prefill, split, static_grid
from attn_kernels.testing.poisoned import run_poisoned

MIXED = ((5, 1, 0, 1), (40, 50, 20, 1))


def parts_of(batch, config, window=None):
    """Every (sequence, first query, KV head, first head in its group, segment) that has keys, by counting."""
    heads = min(batch.q.shape[1] // batch.k_cache.shape[2], config.block_m)
    block_q, found = config.block_m // heads, []
    for seq, (query_len, context_len) in enumerate(zip(batch.query_lens, batch.context_lens, strict=True)):
        for first in range(0, query_len, block_q):
            position = context_len - query_len + first
            last = position + min(block_q, query_len - first) - 1
            leftmost = 0 if window is None else max(position - window + 1, 0) // config.tile_size
            tiles = last // config.tile_size + 1 - leftmost
            each = -(-tiles // config.num_segments)
            for kv_head in range(batch.k_cache.shape[2]):
                for head in range(0, batch.q.shape[1] // batch.k_cache.shape[2], heads):
                    found += [(seq, first, kv_head, head, segment) for segment in range(-(-tiles // each))]
    return Counter(found)


FIELDS = ("seq", "first_query", "kv_head", "head_in_group", "segment")


@pytest.mark.parametrize("programs_per_sm", [1, 20])
@pytest.mark.parametrize("num_segments", [1, 3])
@pytest.mark.parametrize("ratio, kv_heads", [(4, 2), (18, 1)])
def test_a_static_grid_computes_every_part_once(programs_per_sm, num_segments, ratio, kv_heads, monkeypatch):
    launches = record_launches(monkeypatch)
    partials = record_calls(monkeypatch, static_grid, "store_segment", *FIELDS)
    results = record_calls(monkeypatch, static_grid, "store_output", *FIELDS[:-1])
    batch = random_batch(((2, 1, 0, 1), (40, 50, 20, 1)), ratio=ratio, kv_heads=kv_heads, head_size=16)
    config = make_config("static_grid", num_segments=num_segments, programs_per_sm=programs_per_sm)
    check(batch, config)
    expected = parts_of(batch, config)
    programs = 3 * programs_per_sm
    assert programs != 3 or len(expected) > programs
    done = [(*result, 0) for result in results] if num_segments == 1 else partials
    assert Counter(done) == expected
    assert launches[0].grid == (programs,)
    assert [launch.kernel for launch in launches[1:]] == ["reduce_kernel"] * (num_segments > 1)


@pytest.mark.parametrize("programs_per_sm", [1, 4])
def test_a_static_grid_is_of_one_size_whatever_the_batch(programs_per_sm, monkeypatch):
    monkeypatch.setattr(static_grid, "multiprocessors", lambda device: 132)
    launches = record_launches(monkeypatch, execute=False)
    for lens in (((1,), (1,)), ((100, 1), (100, 3000)), ((1,) * 300, (7,) * 300)):
        batch = random_batch(lens, ratio=2, kv_heads=3, head_size=16)
        run_poisoned(batch, batch.plan(config=make_config("static_grid", programs_per_sm=programs_per_sm)))
    grids = {launch.grid for launch in launches if launch.kernel == "static_grid_kernel"}
    assert grids == {(132 * programs_per_sm,)}


@pytest.mark.parametrize(
    "query_lens, kernels",
    [
        ((1, 1), ["decode_kernel"]),
        ((1, 0), ["decode_kernel"]),
        ((3, 3), ["prefix_prefill_kernel"]),
        ((3, 1, 0, 2), ["prefix_prefill_kernel", "decode_kernel"]),
    ],
)
def test_split_launches_only_needed_kernels(query_lens, kernels, monkeypatch):
    launches = record_launches(monkeypatch)
    in_decode = record_calls(monkeypatch, split, "attend_and_store", "seq", "kv_head")
    in_prefill = record_calls(
        monkeypatch, prefix_prefill, "attend_and_store", "seq", "kv_head", "head_in_group"
    )
    batch = random_batch((query_lens, [length + 20 for length in query_lens]), 2, 2, 16)
    check(batch, make_config("split"))
    assert [launch.kernel for launch in launches] == kernels
    decodes = [seq for seq, length in enumerate(query_lens) if length == 1]
    prefills = [seq for seq, length in enumerate(query_lens) if length > 1]
    assert Counter(in_decode) == Counter((seq, kv_head) for seq in decodes for kv_head in (0, 1))
    expected = ((seq, kv_head, head) for seq in prefills for kv_head in (0, 1) for head in (0, 1))
    assert Counter(in_prefill) == Counter(expected)


@pytest.mark.parametrize("variant", ["segmented", "static_grid"])
def test_a_plan_serves_layers_of_different_features(variant):
    """Layers use the plan's workspace one after the other, and none sees what another left there."""
    batch = random_batch(((2, 1), (40, 50)), ratio=2, head_size=16)
    plan = batch.plan(config=make_config(variant))
    for options in ({}, {"sliding_window": 3}, {"sinks": torch.ones(2)}, {"softcap": 2.0}):
        assert_close(run(plan, batch.q, batch.k_cache, batch.v_cache, **options), batch.reference(**options))
