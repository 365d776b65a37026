"""Static launch grid: a persistent kernel, each of whose programs computes Q-Blocks one after another.

"The Anatomy of a Triton Attention Kernel", arXiv 2511.11581, sections 4.7 and 6.2. The number of programs
depends on the GPU and not on the batch, so a captured graph replays for other batches without idle programs.
Programs find their Q-Blocks by the cumulative Q-Block tensor, in prefill and decode alike.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, OfPlan, Plan
from attn_kernels.kernels.arguments import (
    CU_SEQLENS_Q,
    JIT_OPTIONS,
    NUM_SEQS,
    ONE_PROGRAM_OPTIONS,
    Specialisation,
    common_arguments,
    multiprocessors,
    of_workspace,
    one_program_grid,
)
from attn_kernels.kernels.compile_params import PagedCache, Scoring
from attn_kernels.kernels.qblock import bind_group
from attn_kernels.kernels.query_tile import (
    attend_cache,
    load_queries,
    load_scales,
    make_q_block,
    search,
    store_output,
)
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
from attn_kernels.kernels.variant import ConfigGrid, Scratch, ScratchMaxima, ScratchSizes, Variant

CU_Q_BLOCKS, *PARTIALS, NUM_SEGMENTS = map(of_workspace, range(5))
NO_PARTIALS = {"partial_ptr": None, "max_ptr": None, "sum_ptr": None}


@triton.jit(**JIT_OPTIONS)
def static_grid_kernel(
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
    cu_q_blocks_ptr,
    partial_ptr,
    max_ptr,
    sum_ptr,
    num_segments_ptr,
    num_kv_heads,
    heads_per_group,
    const: tl.constexpr,
):
    UNSPLIT: tl.constexpr = const.num_segments == 1
    segments = segments_used(num_segments_ptr, const.num_segments)
    HEAD_SPLITS: tl.constexpr = const.head_splits
    num_blocks = tl.load(cu_q_blocks_ptr + num_seqs)
    num_items = num_blocks * num_kv_heads * HEAD_SPLITS * segments
    scoring = Scoring(factor, cap, window, slopes_ptr, sinks_ptr)
    scales = load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr)
    k = (k_ptr, stride_k_page, stride_k_slot, stride_k_head)
    v = (v_ptr, stride_v_page, stride_v_slot, stride_v_head)
    cache = PagedCache(block_table_ptr, stride_table, k, v)
    q = (q_ptr, stride_q_token, stride_q_head)
    out = (out_ptr, stride_out_token, stride_out_head)
    partials = (partial_ptr, max_ptr, sum_ptr)
    for item in tl.range(tl.program_id(0), num_items, tl.num_programs(0), num_stages=1):
        segment = item % segments
        head = item // segments % HEAD_SPLITS * const.heads
        item_of_head = item // (segments * HEAD_SPLITS)
        # Group after group of KV heads. In each, block after block: the longest first, as in qblock.
        group = item_of_head // (num_blocks * heads_per_group)
        item_of_group = item_of_head % (num_blocks * heads_per_group)
        kv_head = group * heads_per_group + item_of_group % heads_per_group
        q_block = num_blocks - 1 - item_of_group // heads_per_group
        seq = search(cu_q_blocks_ptr, num_seqs, q_block)
        block_in_seq = q_block - tl.load(cu_q_blocks_ptr + seq)
        block = make_q_block(cu_seqlens_q_ptr, seqused_k_ptr, seq, block_in_seq, kv_head, head, const.block_q)
        start, stop = segment_keys(block, window, segment, segments, const.tile_size, const.windowed)
        if start < stop:
            queries = load_queries(q, block, scoring, const)
            state = attend_cache(block, queries, cache, scoring, scales, start, stop, UNSPLIT, const)
            if UNSPLIT:
                store_output(out, block, state[0] / state[2][:, None], const)
            else:
                heads = num_kv_heads * const.queries_per_kv
                store_segment(
                    out, partials, num_segments_ptr, block, segment, segments, heads, scoring, state, const
                )


@triton.jit(**JIT_OPTIONS)
def count_q_blocks_kernel(cu_q_blocks_ptr, cu_seqlens_q_ptr, num_seqs, block_q):
    """Fill the cumulative Q-Block tensor, for Q-Blocks of ``block_q`` query tokens; one program."""
    CHUNK: tl.constexpr = 1024  # sequences at a time
    tl.store(cu_q_blocks_ptr, 0)
    before = 0
    for first in tl.range(0, num_seqs, CHUNK):
        seqs = first + tl.arange(0, CHUNK)
        exists = seqs < num_seqs
        starts = tl.load(cu_seqlens_q_ptr + seqs, mask=exists, other=0)
        stops = tl.load(cu_seqlens_q_ptr + seqs + 1, mask=exists, other=0)
        blocks = (stops - starts + block_q - 1) // block_q
        tl.store(cu_q_blocks_ptr + 1 + seqs, before + tl.cumsum(blocks, 0), mask=exists)
        before += tl.sum(blocks, 0)


def take_scratch(scratch: Scratch, sizes: ScratchSizes) -> tuple[Tensor, ...]:
    """The cumulative Q-Block tensor, int32 [num_seqs + 1]; with segments, ``take_partials`` as well."""
    cu_q_blocks = scratch.cu_q_blocks(sizes)
    return (cu_q_blocks, *take_partials(scratch, sizes)) if sizes.num_segments > 1 else (cu_q_blocks,)


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    count = Specialisation(count_q_blocks_kernel, options=ONE_PROGRAM_OPTIONS)
    constants = absent_num_segments(config)
    if config.num_segments == 1:
        return count, Specialisation(static_grid_kernel, constants=NO_PARTIALS | constants)
    kernel = Specialisation(static_grid_kernel, constants=constants)
    return count, *specialise_count_segments(config), kernel, specialise_reduce(config)


def bind_once(plan: Plan) -> tuple[Launch, ...]:
    block_m = plan.config.block_m
    arguments = (CU_Q_BLOCKS, CU_SEQLENS_Q, NUM_SEQS, block_m // min(plan.model.queries_per_kv, block_m))
    count = Launch(count_q_blocks_kernel, one_program_grid, arguments, ONE_PROGRAM_OPTIONS)
    return (count, *bind_count_segments(plan, NUM_SEGMENTS))


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """A launch of ``programs_per_sm`` programs a multiprocessor; with segments, another that joins them."""
    arguments, const, options = common_arguments(plan, layer)
    grid = (multiprocessors(plan.device) * plan.config.programs_per_sm,)
    segmented = plan.config.num_segments > 1
    num_segments = NUM_SEGMENTS if plan.segments_by_row else None
    group = OfPlan(bind_group(plan, layer))
    kept = PARTIALS if segmented else NO_PARTIALS.values()
    arguments = (*arguments, CU_Q_BLOCKS, *kept, num_segments, plan.model.num_kv_heads, group, const)
    first = Launch(static_grid_kernel, lambda plan: grid, arguments, options)
    return (first, bind_reduce(layer, PARTIALS, num_segments, const)) if segmented else (first,)


def scratch_maxima(config: Config, device: torch.device) -> ScratchMaxima:
    """Results of one segment go to the output, so nothing is kept of it."""
    return ScratchMaxima(segments=config.num_segments if config.num_segments > 1 else 0)


VARIANT = Variant(
    name="static_grid",
    kernels=(count_segments_kernel, count_q_blocks_kernel, static_grid_kernel, reduce_kernel),
    bind=bind,
    bind_once=bind_once,
    specialise=specialise,
    parameters=SEGMENT_PARAMETERS | {"programs_per_sm"},
    scratch=take_scratch,
    scratch_maxima=scratch_maxima,
    # Segments make the kernel another, and so does whether the device counts them.
    samples=(
        Config("static_grid", block_m=64, tile_size=32, programs_per_sm=2),
        Config("static_grid", block_m=16, tile_size=32, num_segments=4, programs_per_sm=4, device_segments=1),
    ),
    # programs_per_sm sets the grid alone, so its values share a compiled kernel.
    grids=(
        ConfigGrid(M=(16, 32), T=(32, 64), W=(4,), S=(3,), P=(2, 4)),
        ConfigGrid(M=(16,), T=(32, 64), W=(4,), S=(3,), N=(8, 16), P=(2, 4)),
        ConfigGrid(M=(64,), T=(32, 64), W=(4,), S=(3,), P=(1, 2, 4)),
        ConfigGrid(M=(64,), T=(64,), W=(4,), S=(3,), N=(8,), P=(1, 2)),
        ConfigGrid(M=(128,), T=(32,), W=(4,), S=(3,), P=(1, 2)),
        ConfigGrid(M=(128,), T=(64, 128), W=(8,), S=(2, 3), P=(1, 2)),
    ),
)
