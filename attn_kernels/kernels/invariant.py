"""Attention whose results for a sequence have the same bits in every batch.

A query's sums depend on its own keys alone. Every context is divided at the same keys, at multiples of
``SPLIT_KEYS`` from its beginning, and each of these ranges has a softmax state of its own. ``join_states``
joins them in the order of the keys: within a program that computes all ranges of a Q-Block, or in
``join_kernel`` if each range had a program. So the batch decides only who computes what. Compilers may not
fuse products and sums, because they could do so in one of several loops. Rows and tiles that are masked add
exact zeros.

Other tiles would be summed in another order, so a model with ``batch_invariant`` has one config for all its
batches. The idea is that of "Defeating Nondeterminism in LLM Inference" (He et al., Thinking Machines Lab,
2025).
"""

from collections.abc import Callable
from dataclasses import replace

import triton
import triton.language as tl

from attn_kernels.core.config import Config
from attn_kernels.core.lengths import Lengths
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Launch, Layer, OfLayer, OfPlan, Plan
from attn_kernels.kernels.arguments import (
    CU_SEQLENS_Q,
    JIT_OPTIONS,
    MAX_QUERY_LEN,
    NUM_SEQS,
    SEQUSED_K,
    common_arguments,
    lse_arguments,
    of_workspace,
    ranges_of,
)
from attn_kernels.kernels.compile_params import CompileParams, PagedCache, QBlock, Scoring
from attn_kernels.kernels.qblock import bind_group
from attn_kernels.kernels.query_tile import (
    attend_cache,
    end_of_keys,
    find_q_block,
    first_key,
    first_tile,
    initial_state,
    load_queries,
    load_scales,
    make_q_block,
    search,
    store_normalised,
)
from attn_kernels.kernels.splits import SPLIT_KEYS as SPLIT_KEYS_OF_PLAN
from attn_kernels.kernels.splits import find_splits, join_states, max_q_blocks, store_state, take_partials
from attn_kernels.kernels.variant import ConfigGrid, Variant

SPLIT_KEYS = 1024  # of each range; a multiple of every tile size. Another number gives other bits
PARTIALS = tuple(map(of_workspace, range(3)))
JOIN_OPTIONS = {"num_warps": 1, "enable_fp_fusion": False}


@triton.jit
def find_ranges(block, images, window, ahead, split_keys, WINDOWED: tl.constexpr):
    """The first range of keys that a QBlock sees, how many it sees, and where its keys end."""
    first_position = block.context_len + block.first_query
    first = first_key(first_position, window, WINDOWED) // split_keys
    end = end_of_keys(block, ahead, images)
    return first, tl.cdiv(end, split_keys) - first, end


@triton.jit
def one_program(count, num_splits):
    """Whether one program computes a Q-Block that sees ``count`` ranges, and not one each."""
    return (count <= 1) | (count > num_splits)


@triton.jit(**JIT_OPTIONS)
def invariant_kernel(
    out_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    block_table_ptr,
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    slopes_ptr,
    sinks_ptr,
    k_scale_ptr,
    v_scale_ptr,
    lse_ptr,
    factor,
    cap,
    k_scale,
    v_scale,
    window,
    ahead,
    num_seqs,
    stride_q_token,
    stride_q_head,
    stride_out_token,
    stride_out_head,
    stride_lse,
    stride_table,
    stride_k_page,
    stride_k_slot,
    stride_k_head,
    stride_v_page,
    stride_v_slot,
    stride_v_head,
    partial_ptr,
    max_ptr,
    sum_ptr,
    split_keys,
    num_splits,
    num_kv_heads,
    heads_per_group,
    max_query_len,
    ranges_ptr,
    max_ranges,
    const: tl.constexpr,
):
    """As ``qblock_kernel``, whose grid it has, with ranges that begin at the same keys in every batch."""
    q_block = tl.num_programs(0) // heads_per_group - 1 - tl.program_id(0) // heads_per_group
    split = tl.program_id(1) % num_splits
    kv_head = tl.program_id(1) // num_splits * heads_per_group + tl.program_id(0) % heads_per_group
    block = find_q_block(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, q_block, kv_head, max_query_len, const)
    if block.num_queries < 1:
        return
    images = (ranges_ptr, max_ranges)
    first, count, end = find_ranges(block, images, window, ahead, split_keys, const.windowed)
    whole = one_program(count, num_splits)
    if (split > 0) & (whole | (split >= count)):
        return
    scoring = Scoring(factor, cap, window, ahead, slopes_ptr, sinks_ptr, images)
    scales = load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr)
    k = (k_ptr, stride_k_page, stride_k_slot, stride_k_head)
    v = (v_ptr, stride_v_page, stride_v_slot, stride_v_head)
    cache = PagedCache(block_table_ptr, stride_table, k, v)
    q = (q_ptr, stride_q_token, stride_q_head)
    out = (out_ptr, stride_out_token, stride_out_head)
    queries = load_queries(q, block, scoring, const)
    begin = first_tile(queries.first_position, window, const.tile_size, const.windowed)
    acc, row_max, row_sum = initial_state(const)
    last = tl.where(whole, first + count, first + split + 1)
    for number in tl.range(first + split, last, num_stages=1):
        start = tl.maximum(number * split_keys, begin)
        stop = tl.minimum((number + 1) * split_keys, end)
        state = attend_cache(block, queries, cache, scoring, scales, start, stop, const)
        acc, row_max, row_sum = join_states(acc, row_max, row_sum, state[0], state[1], state[2])
    partials = (partial_ptr, max_ptr, sum_ptr)
    heads = num_kv_heads * const.gqa_group_size
    state = (acc, row_max, row_sum)
    lse = (lse_ptr, stride_lse)
    store_state(out, lse, partials, block, split, whole, num_splits, heads, scoring, state, const)


@triton.jit(**JIT_OPTIONS)
def join_kernel(
    out_ptr,
    partial_ptr,
    max_ptr,
    sum_ptr,
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    sinks_ptr,
    lse_ptr,
    window,
    ahead,
    num_seqs,
    split_keys,
    num_splits,
    block_q,
    stride_out_token,
    stride_out_head,
    stride_lse,
    ranges_ptr,
    max_ranges,
    const: tl.constexpr,
):
    """Join the ranges of one query token and head, one after the other; ``const`` is of one row."""
    HEAD_PADDED: tl.constexpr = const.head_padded
    token = tl.program_id(0)
    head = tl.program_id(1)
    seq = search(cu_seqlens_q_ptr, num_seqs, token)
    query = token - tl.load(cu_seqlens_q_ptr + seq)
    block = make_q_block(cu_seqlens_q_ptr, seqused_k_ptr, seq, query // block_q, head, 0, block_q)
    if query < 0 or query - block.first_query >= block.num_queries:  # a token of no sequence
        return
    images = (ranges_ptr, max_ranges)
    _, count, _ = find_ranges(block, images, window, ahead, split_keys, const.windowed)
    if one_program(count, num_splits):
        return
    places = (token.to(tl.int64) * tl.num_programs(1) + head) * num_splits + tl.arange(0, 1)
    columns = tl.arange(0, HEAD_PADDED)[None, :]
    acc, row_max, row_sum = initial_state(const)
    for _ in tl.range(0, count, loop_unroll_factor=8):  # so that loads do not wait for one another
        next_max = tl.load(max_ptr + places)
        next_sum = tl.load(sum_ptr + places)
        next_acc = tl.load(partial_ptr + (places * HEAD_PADDED)[:, None] + columns)
        acc, row_max, row_sum = join_states(acc, row_max, row_sum, next_acc, next_max, next_sum)
        places += 1
    row = QBlock(
        seq, query, 1, token.to(tl.int64), block.context_len, head.to(tl.int64), 0, block.num_keys, 0
    )
    out = (out_ptr, stride_out_token, stride_out_head)
    scoring = Scoring(0.0, 0.0, window, ahead, None, sinks_ptr, images)
    store_normalised(out, (lse_ptr, stride_lse), row, scoring, acc, row_max, row_sum, const)


def of_one_row(const: CompileParams) -> CompileParams:
    """The ``const`` of ``join_kernel``."""
    return replace(const, block_m=1, heads=1, gqa_group_size=1, columns=const.head_padded)


def find_invariant_splits(
    config: Config, model: Model, lengths: Lengths, multiprocessors: int, max_partials: int
) -> tuple[int, int]:
    """As ``find_splits``: each range has a program where splits pay, and partial results have room."""
    unequal = lengths.of_unknown_total(model.sliding_window)
    splits, _ = find_splits(config, model, unequal, multiprocessors, max_partials)
    ranges = -(-lengths.max_seq_len // SPLIT_KEYS)
    room = max_partials // max(1, lengths.num_query_tokens * model.num_query_heads)
    return (ranges if splits > 1 and ranges <= room else 1), SPLIT_KEYS


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    group = bind_group(plan, layer)
    arguments, const, options = common_arguments(plan, layer)
    num_splits = OfPlan(_bind_num_splits(layer, const.block_q))

    def programs(plan: Plan) -> tuple[int, int, int]:
        heads = group(plan)
        groups = plan.model.num_kv_heads // heads
        splits = num_splits.value(plan)
        parts = const.head_splits * const.column_parts
        return max_q_blocks(plan.lengths, const.block_q) * heads, groups * splits, parts

    def rows(plan: Plan) -> tuple[int, int]:
        return plan.lengths.num_query_tokens, plan.model.num_query_heads

    of_splits = (*PARTIALS, SPLIT_KEYS_OF_PLAN, num_splits)
    images = ranges_of(layer)
    of_grid = (plan.model.num_kv_heads, OfPlan(group), MAX_QUERY_LEN, *images)
    lse, lse_stride = lse_arguments(layer)
    to_join = (
        OfLayer("out"),
        *PARTIALS,
        CU_SEQLENS_Q,
        SEQUSED_K,
        None if layer.sinks is None else OfLayer("sinks"),
        lse,
        layer.sliding_window or 0,
        layer.ahead,
        NUM_SEQS,
        SPLIT_KEYS_OF_PLAN,
        num_splits,
        const.block_q,
        *(n // const.query_unit for n in layer.out.stride()[:2]),
        lse_stride,
        *images,
        of_one_row(const),
    )
    return (
        Launch(invariant_kernel, programs, (*arguments, *of_splits, *of_grid, const), options),
        Launch(join_kernel, rows, to_join, JOIN_OPTIONS, lambda plan: num_splits.value(plan) > 1),
    )


def _bind_num_splits(layer: Layer, block_q: int) -> Callable[[Plan], int]:
    """A function from a plan to the programs of a Q-Block, of which few have keys within a window."""
    if layer.sliding_window is None:
        return lambda plan: plan.num_splits
    most = 1 + -(-(layer.sliding_window + (layer.ahead or 0) + block_q - 1) // SPLIT_KEYS)
    return lambda plan: min(plan.num_splits, most)


VARIANT = Variant(
    name="invariant",
    kernels=(invariant_kernel, join_kernel),
    bind=bind,
    batch_invariant=True,
    find_splits=find_invariant_splits,
    scratch=take_partials,
    samples=(Config("invariant", block_m=64, tile_size=32),),
    grids=(
        ConfigGrid(M=(64,), T=(32, 64), W=(4, 8), S=(2, 3)),
        ConfigGrid(M=(64,), T=(128,), W=(4, 8), S=(2,)),
    ),
)
