"""Static launch grid: a persistent kernel of a fixed number of programs that hand themselves the work.

"The Anatomy of a Triton Attention Kernel", arXiv 2511.11581, sections 4.7 and 6.2: the launch depends on the
GPU, not on the batch, so a captured graph replays for other batches without programs that find nothing to do.
The work is read from the cumulative Q-Block tensor, for prefill and decode alike.
"""

from functools import cache as memoize

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
    common,
    of_workspace,
    one_program,
)
from attn_kernels.kernels.compile_params import Cache, Scoring
from attn_kernels.kernels.device_splits import bind_decide, specialise_decide
from attn_kernels.kernels.pages import search
from attn_kernels.kernels.qblock import bind_group
from attn_kernels.kernels.rows import attend_cache, load_rows, load_scales, place, store_rows
from attn_kernels.kernels.scratch import Needs, Scratch
from attn_kernels.kernels.segments import (
    bind_reduce,
    partials,
    segment_keys,
    segments_used,
    specialise_reduce,
    store_segment,
    undecided,
)

CU_Q_BLOCKS, *PARTIALS, DECIDED = map(of_workspace, range(5))
NO_PARTIALS = {"partial_ptr": None, "max_ptr": None, "sum_ptr": None}
COUNT_CHUNK = 1024  # sequences at a time
INTERPRETED_PROCESSORS = 3  # stand for a GPU's multiprocessors on the CPU


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
    decided_ptr,
    num_kv_heads,
    heads_per_group,
    const: tl.constexpr,
):
    UNSPLIT: tl.constexpr = const.num_segments == 1
    segments = segments_used(decided_ptr, const)
    HEAD_SPLITS: tl.constexpr = (const.queries_per_kv + const.heads - 1) // const.heads
    num_blocks = tl.load(cu_q_blocks_ptr + num_seqs)
    num_items = num_blocks * num_kv_heads * HEAD_SPLITS * segments
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
    for item in tl.range(tl.program_id(0), num_items, tl.num_programs(0), num_stages=1):
        segment = item % segments
        head = item // segments % HEAD_SPLITS * const.heads
        item_of_head = item // (segments * HEAD_SPLITS)
        # Group after group of KV heads; in each, block after block, longest first as in the Q-Block kernel.
        group = item_of_head // (num_blocks * heads_per_group)
        item_of_group = item_of_head % (num_blocks * heads_per_group)
        kv_head = group * heads_per_group + item_of_group % heads_per_group
        q_block = num_blocks - 1 - item_of_group // heads_per_group
        seq = search(cu_q_blocks_ptr, num_seqs, q_block)
        block_in_seq = q_block - tl.load(cu_q_blocks_ptr + seq)
        block = place(cu_seqlens_q_ptr, seqused_k_ptr, seq, block_in_seq, kv_head, head, const)
        start, stop = segment_keys(block, window, segment, segments, const)
        if start < stop:
            rows = load_rows(q_ptr, stride_q_token, stride_q_head, block, scoring, const)
            acc, row_max, row_sum = attend_cache(
                block, rows, cache, scoring, scales, start, stop, UNSPLIT, const
            )
            if UNSPLIT:
                result = acc / row_sum[:, None]
                store_rows(out_ptr, stride_out_token, stride_out_head, block, result, const)
            else:
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


@memoize
def multiprocessors(device: torch.device) -> int:
    if device.type == "cpu":
        return INTERPRETED_PROCESSORS
    return torch.cuda.get_device_properties(device).multi_processor_count


@triton.jit(**JIT_OPTIONS)
def count_q_blocks_kernel(
    cu_q_blocks_ptr, cu_seqlens_q_ptr, num_seqs, BLOCK_Q: tl.constexpr, CHUNK: tl.constexpr
):
    """The cumulative Q-Block tensor, by one program."""
    tl.store(cu_q_blocks_ptr, 0)
    before = 0
    for first in tl.range(0, num_seqs, CHUNK):
        seqs = first + tl.arange(0, CHUNK)
        exists = seqs < num_seqs
        starts = tl.load(cu_seqlens_q_ptr + seqs, mask=exists, other=0)
        stops = tl.load(cu_seqlens_q_ptr + seqs + 1, mask=exists, other=0)
        blocks = (stops - starts + BLOCK_Q - 1) // BLOCK_Q
        tl.store(cu_q_blocks_ptr + 1 + seqs, before + tl.cumsum(blocks, 0), mask=exists)
        before += tl.sum(blocks, 0)


def workspace(scratch: Scratch, needs: Needs) -> tuple[Tensor, ...]:
    """The cumulative Q-Block tensor, int32 [num_seqs + 1], and the partial results if there are segments."""
    cu_q_blocks = scratch.cu_q_blocks(needs)
    return (cu_q_blocks, *partials(scratch, needs)) if needs.num_segments > 1 else (cu_q_blocks,)


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    count = Specialisation(
        count_q_blocks_kernel, constants=count_constants(config, queries_per_kv), options=ONE_PROGRAM_OPTIONS
    )
    if config.num_segments > 1:
        kernel = Specialisation(static_grid_kernel, constants=undecided(config))
        return (count, *specialise_decide(config), kernel, specialise_reduce(config))
    return (count, Specialisation(static_grid_kernel, constants={**NO_PARTIALS, **undecided(config)}))


def count_constants(config: Config, queries_per_kv: int) -> dict[str, int]:
    return {"BLOCK_Q": config.block_m // min(queries_per_kv, config.block_m), "CHUNK": COUNT_CHUNK}


def bind_once(plan: Plan) -> tuple[Launch, ...]:
    """The kernel that fills the cumulative Q-Block tensor, once a plan."""
    constants = count_constants(plan.config, plan.model.queries_per_kv)
    arguments = (CU_Q_BLOCKS, CU_SEQLENS_Q, NUM_SEQS, *constants.values())
    count = Launch(count_q_blocks_kernel, one_program, arguments, ONE_PROGRAM_OPTIONS)
    return (count, *bind_decide(plan, DECIDED))


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """``programs_per_sm`` programs for each multiprocessor; with segments, a second kernel joins them."""
    arguments, const, options = common(plan, layer)
    grid = (multiprocessors(plan.device) * plan.config.programs_per_sm,)
    segmented = plan.config.num_segments > 1
    decided = DECIDED if plan.segments_function else None
    first = Launch(
        static_grid_kernel,
        lambda plan: grid,
        (
            *arguments,
            CU_Q_BLOCKS,
            *(PARTIALS if segmented else NO_PARTIALS.values()),
            decided,
            plan.model.num_kv_heads,
            OfPlan(bind_group(plan, layer)),
            const,
        ),
        options,
    )
    return (first, bind_reduce(layer, PARTIALS, decided, const)) if segmented else (first,)
