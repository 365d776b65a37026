"""Parallel tiled softmax: Q-Blocks whose keys are split among several programs, then a reduction.

"The Anatomy of a Triton Attention Kernel", arXiv 2511.11581, section 4.5 and listing 5. For decode of few
sequences, where Q-Blocks alone would leave most of a GPU idle.
"""

import triton
import triton.language as tl

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels.arguments import JIT_OPTIONS, Specialisation, common, of_workspace
from attn_kernels.kernels.compile_params import Cache, Scoring
from attn_kernels.kernels.device_splits import bind_decide, specialise_decide
from attn_kernels.kernels.qblock import q_blocks_bound
from attn_kernels.kernels.rows import attend_cache, load_rows, load_scales, place_q_block
from attn_kernels.kernels.segments import (
    bind_reduce,
    segment_keys,
    segments_used,
    specialise_reduce,
    store_segment,
    undecided,
)

*PARTIALS, DECIDED = map(of_workspace, range(4))


@triton.jit(**JIT_OPTIONS)
def segmented_kernel(
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
    factor,
    cap,
    k_scale,
    v_scale,
    window,
    num_seqs,
    stride_q_token,
    stride_q_head,
    stride_out_token,
    stride_out_head,
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
    decided_ptr,
    num_kv_heads,
    const: tl.constexpr,
):
    q_block = tl.num_programs(0) // num_kv_heads - 1 - tl.program_id(0) // num_kv_heads
    kv_head = tl.program_id(0) % num_kv_heads
    segment = tl.program_id(1)
    segments = segments_used(decided_ptr, const)
    if segment >= segments:
        return
    block = place_q_block(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, q_block, kv_head, const)
    if block.num_queries < 1:
        return
    scoring = Scoring(factor, cap, window, slopes_ptr, sinks_ptr)
    scales = load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr)
    cache = Cache(
        block_table_ptr,
        k_ptr,
        v_ptr,
        stride_table,
        stride_k_page,
        stride_k_slot,
        stride_k_head,
        stride_v_page,
        stride_v_slot,
        stride_v_head,
    )
    start, stop = segment_keys(block, window, segment, segments, const)
    if start >= stop:
        return
    rows = load_rows(q_ptr, stride_q_token, stride_q_head, block, scoring, const)
    acc, row_max, row_sum = attend_cache(block, rows, cache, scoring, scales, start, stop, False, const)
    store_segment(
        out_ptr,
        stride_out_token,
        stride_out_head,
        partial_ptr,
        max_ptr,
        sum_ptr,
        decided_ptr,
        block,
        segment,
        segments,
        num_kv_heads * const.queries_per_kv,
        scoring,
        acc,
        row_max,
        row_sum,
        const,
    )


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    kernel = Specialisation(segmented_kernel, constants=undecided(config))
    return (*specialise_decide(config), kernel, specialise_reduce(config))


def bind_once(plan: Plan) -> tuple[Launch, ...]:
    """Nothing but what decides on the device, if anything does."""
    return bind_decide(plan, DECIDED)


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """Two kernels, the second of which joins the segments."""
    arguments, const, options = common(plan, layer)
    block_q, segments = const.block_m // const.heads, plan.config.num_segments
    head_splits = -(-plan.model.queries_per_kv // const.heads)

    def programs(plan: Plan) -> tuple[int, int, int]:
        return q_blocks_bound(plan, block_q) * plan.model.num_kv_heads, segments, head_splits

    decided = DECIDED if plan.segments_function else None
    arguments = (*arguments, *PARTIALS, decided, plan.model.num_kv_heads, const)
    first = Launch(segmented_kernel, programs, arguments, options)
    return first, bind_reduce(layer, PARTIALS, decided, const)
