"""The join of the Hopper kernel's splits, in the interpreter, against float64."""

from itertools import accumulate

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import scheduled, tiles_per_split

from attn_kernels import Config
from attn_kernels.kernels.hopper_joins import ROWS, constants, join_prompts_kernel
from attn_kernels.kernels.schedule import BLOCK_M, SPLIT_KEYS_AT, SPLITTABLE_AT, Roles

POISON = -77.0

prompts = st.lists(
    st.tuples(st.integers(0, 70), st.sampled_from((0, 30, 700, 5000))), min_size=1, max_size=3
).filter(lambda sizes: any(query for query, _ in sizes))


@settings(max_examples=40)
@given(
    prompts,
    st.sampled_from((1, 2)),
    st.sampled_from((3, 8)),
    st.sampled_from((64, 80)),
    st.sampled_from((1, 2, 5)),
    st.sampled_from((150, 2000, 1 << 30)),
    st.booleans(),
    st.sampled_from((None, 0, 40, 1 << 29)),
    st.integers(0, 1000),
)
def test_split_rows_are_joined_and_others_left(
    sizes, num_kv_heads, group, head_size, num_splits, split_keys, with_sinks, ahead, seed
):
    generator = torch.Generator().manual_seed(seed)
    starts = [0, *accumulate(query for query, _ in sizes)]
    tokens, heads, block_q = starts[-1], num_kv_heads * group, BLOCK_M // group
    context_lens = [query + cached for query, cached in sizes]
    roles, causal = Roles(block_q, 0, 0), ahead is None
    schedule = scheduled(starts, starts, context_lens, roles, tokens, num_kv_heads, causal)
    schedule[SPLIT_KEYS_AT], schedule[SPLITTABLE_AT] = split_keys, schedule[2]
    chosen = constants(Config("qblock", block_m=128, tile_size=64, tma=1), head_size, group)
    states = torch.randn(tokens, heads, num_splits, generator=generator)
    maxima = torch.where(states < -1.5, -1e30, 10 * states)  # a split may hold no key of a row
    sums = torch.where(states < -1.5, 0.0, 1 + states.abs())
    maxima[:, :, 0], sums[:, :, 0] = states[:, :, 0], 1.0
    partials = torch.randn(tokens, heads, num_splits, chosen["HEAD_PADDED"], generator=generator)
    partials *= (sums > 0)[..., None]
    sinks = torch.randn(heads, generator=generator) if with_sinks else None
    out = torch.full((tokens, heads, head_size), POISON)
    lse = torch.full((heads, tokens), POISON)
    strides = (heads * head_size // chosen["UNIT"], head_size // chosen["UNIT"], tokens)
    join_prompts_kernel[(len(schedule), num_kv_heads, BLOCK_M // ROWS)](
        out,
        partials,
        maxima,
        sums,
        torch.tensor(schedule, dtype=torch.int32),
        sinks,
        lse,
        ahead,
        num_splits,
        num_kv_heads,
        *strides,
        **chosen,
    )
    for (query_len, cached), start in zip(sizes, starts, strict=False):
        for query in range(query_len):
            stop = min(query // block_q * block_q + block_q, query_len)
            tiles = -(-min(cached + stop + (ahead or 0), cached + query_len) // 64)
            count = -(-tiles // tiles_per_split(tiles, split_keys, 64, num_splits))
            token = start + query
            if count == 1:
                assert (out[token] == POISON).all() and (lse[:, token] == POISON).all()
                continue
            weights = torch.exp2(maxima[token, :, :count].double())
            total = (weights * sums[token, :, :count]).sum(1)
            if sinks is not None:
                total += sinks.double().exp()
            expected = (weights[..., None] * partials[token, :, :count]).sum(1) / total[:, None]
            torch.testing.assert_close(out[token].double(), expected[:, :head_size], atol=1e-5, rtol=1e-4)
            torch.testing.assert_close(lse[:, token].double(), total.log(), atol=1e-5, rtol=1e-4)
