"""Parallel tiled softmax: several programs share the keys of a Q-Block, and a second kernel joins them.

"The Anatomy of a Triton Attention Kernel", arXiv 2511.11581, section 4.5 and listing 5. It is for decode of
few sequences, where Q-Blocks alone leave most of a GPU idle.
"""

import torch
import triton
import triton.language as tl

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels.arguments import JIT_OPTIONS, Specialisation, common_arguments, of_workspace
from attn_kernels.kernels.compile_params import PagedCache, Scoring
from attn_kernels.kernels.qblock import max_q_blocks
from attn_kernels.kernels.query_tile import attend_cache, find_q_block, load_queries, load_scales
from attn_kernels.kernels.segments import (
    SEGMENT_PARAMETERS,
    absent_num_segments,
    bind_count_segments,
    bind_reduce,
    count_segments_kernel,
    reduce_kernel,
    segment_keys,
    segments_used,
    specialise_count_segments,
    specialise_reduce,
    store_segment,
    take_partials,
)
from attn_kernels.kernels.variant import ConfigGrid, ScratchMaxima, Variant

*PARTIALS, NUM_SEGMENTS = map(of_workspace, range(4))


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
    num_segments_ptr,
    num_kv_heads,
    const: tl.constexpr,
):
    q_block = tl.num_programs(0) // num_kv_heads - 1 - tl.program_id(0) // num_kv_heads
    kv_head = tl.program_id(0) % num_kv_heads
    segment = tl.program_id(1)
    segments = segments_used(num_segments_ptr, const.num_segments)
    if segment >= segments:
        return
    block = find_q_block(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, q_block, kv_head, const)
    if block.num_queries < 1:
        return
    scoring = Scoring(factor, cap, window, slopes_ptr, sinks_ptr)
    scales = load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr)
    k = (k_ptr, stride_k_page, stride_k_slot, stride_k_head)
    v = (v_ptr, stride_v_page, stride_v_slot, stride_v_head)
    cache = PagedCache(block_table_ptr, stride_table, k, v)
    q = (q_ptr, stride_q_token, stride_q_head)
    out = (out_ptr, stride_out_token, stride_out_head)
    start, stop = segment_keys(block, window, segment, segments, const.tile_size, const.windowed)
    if start >= stop:
        return
    queries = load_queries(q, block, scoring, const)
    state = attend_cache(block, queries, cache, scoring, scales, start, stop, False, const)
    partials = (partial_ptr, max_ptr, sum_ptr)
    heads = num_kv_heads * const.queries_per_kv
    store_segment(out, partials, num_segments_ptr, block, segment, segments, heads, scoring, state, const)


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    kernel = Specialisation(segmented_kernel, constants=absent_num_segments(config))
    return (*specialise_count_segments(config), kernel, specialise_reduce(config))


def bind_once(plan: Plan) -> tuple[Launch, ...]:
    return bind_count_segments(plan, NUM_SEGMENTS)


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    arguments, const, options = common_arguments(plan, layer)

    def programs(plan: Plan) -> tuple[int, int, int]:
        q_blocks = max_q_blocks(plan, const.block_q)
        return q_blocks * plan.model.num_kv_heads, const.num_segments, const.head_splits

    num_segments = NUM_SEGMENTS if plan.segments_by_row else None
    arguments = (*arguments, *PARTIALS, num_segments, plan.model.num_kv_heads, const)
    first = Launch(segmented_kernel, programs, arguments, options)
    return first, bind_reduce(layer, PARTIALS, num_segments, const)


def scratch_maxima(config: Config, device: torch.device) -> ScratchMaxima:
    """Partial results are kept even of one segment."""
    return ScratchMaxima(segments=config.num_segments)


VARIANT = Variant(
    name="segmented",
    kernels=(count_segments_kernel, segmented_kernel, reduce_kernel),
    bind=bind,
    bind_once=bind_once,
    specialise=specialise,
    parameters=SEGMENT_PARAMETERS,
    scratch=take_partials,
    scratch_maxima=scratch_maxima,
    samples=(
        Config("segmented", block_m=16, tile_size=32, num_segments=8),
        Config("segmented", block_m=16, tile_size=32, num_segments=8, device_segments=1),
    ),
    grids=(
        ConfigGrid(M=(16,), T=(32,), W=(2, 4), S=(3,), N=(8, 16, 32)),
        ConfigGrid(M=(16,), T=(64,), W=(4,), S=(3,), N=(4, 8, 16, 32, 64)),
        ConfigGrid(M=(16,), T=(64,), W=(2,), S=(3,), N=(8,)),
        ConfigGrid(M=(16,), T=(64, 128), W=(4,), S=(2,), N=(16, 32)),
        # Chunks of few, long prompts.
        ConfigGrid(M=(64,), T=(64,), W=(4,), S=(3,), N=(2, 4, 8, 16)),
        ConfigGrid(M=(128,), T=(64,), W=(8,), S=(3,), N=(2, 4)),
        # vLLM's fixed choices.
        ConfigGrid(M=(16, 32, 64, 128), T=(16, 32), W=(4,), S=(3,), N=(16,)),
    ),
)
