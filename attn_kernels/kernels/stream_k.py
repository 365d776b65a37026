"""Stream-K: a launch of fixed size whose programs share the batch's tiles evenly, whatever the batch.

For captured graphs: each program finds its share from the lengths that are in memory when the graph is
replayed, so nothing but the number of programs is decided when it is captured. One launch: the last program
to finish a Q-Block that several share joins their parts. Sources: ``work``; ``fragments``.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels.arguments import JIT_OPTIONS, Specialisation, common, of_workspace
from attn_kernels.kernels.compile_params import Cache, Scoring
from attn_kernels.kernels.fragments import finish, fragment_of, is_last_to_arrive, join, store_fragment
from attn_kernels.kernels.rows import attend_cache, first_tile, load_rows, load_scales
from attn_kernels.kernels.scratch import Needs, Scratch
from attn_kernels.kernels.static_grid import multiprocessors
from attn_kernels.kernels.work import length_of_line, locate

FRAGMENTS = tuple(map(of_workspace, range(4)))


@triton.jit(**JIT_OPTIONS)
def stream_k_kernel(
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
    counters_ptr,
    partial_ptr,
    max_ptr,
    sum_ptr,
    num_kv_heads,
    const: tl.constexpr,
):
    num_tiles = length_of_line(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, const)
    share = tl.cdiv(num_tiles, tl.num_programs(0))
    position = tl.program_id(0) * share
    end = tl.minimum(position + share, num_tiles)
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
    while position < end:
        piece = locate(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, position, const)
        block = piece.block
        next_position = tl.minimum(piece.stop, end)
        rows = load_rows(q_ptr, stride_q_token, stride_q_head, block, scoring, const)
        leftmost = first_tile(rows.first_position, window, const)
        start = leftmost + (position - piece.start).to(tl.int32) * const.tile_size
        stop = leftmost + (next_position - piece.start).to(tl.int32) * const.tile_size
        stop = tl.minimum(stop, rows.last_position + 1)
        acc, row_max, row_sum = attend_cache(block, rows, cache, scoring, scales, start, stop, False, const)
        if next_position - position == piece.stop - piece.start:
            finish(out_ptr, stride_out_token, stride_out_head, block, scoring, acc, row_max, row_sum, const)
        else:
            programs = tl.num_programs(0)
            fragment = fragment_of(tl.program_id(0), position == piece.start, programs)
            store_fragment(partial_ptr, max_ptr, sum_ptr, fragment, block, acc, row_max, row_sum, const)
            first = (piece.start // share).to(tl.int32)
            last = ((piece.stop - 1) // share).to(tl.int32)
            if is_last_to_arrive(counters_ptr, first, last):
                acc, row_max, row_sum = join(
                    partial_ptr, max_ptr, sum_ptr, first, last, programs, block, const
                )
                finish(
                    out_ptr, stride_out_token, stride_out_head, block, scoring, acc, row_max, row_sum, const
                )
        position = next_position


def why_not() -> str | None:
    """Why this vendor's GPUs cannot join fragments as ``fragments`` does; None where they can.

    Triton's barrier (3.6 and 3.9) compiles to a bare ``s_barrier`` for AMD, so that one wavefront may count
    its program as arrived while stores of another have not reached memory.
    """
    return "AMD GPUs do not order a program's stores before its arrival" if torch.version.hip else None


def workspace(scratch: Scratch, needs: Needs) -> tuple[Tensor, ...]:
    """Counters that are zero between launches, and the memory of fragments. Raises ValueError on AMD GPUs."""
    reason = why_not()
    if reason is not None:
        raise ValueError(f"config.variant is 'stream_k', but {reason}: use another")
    return scratch.fragments(multiprocessors(scratch.device) * needs.programs_per_sm, needs)


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    return (Specialisation(stream_k_kernel),)


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """One kernel of ``programs_per_sm`` programs for each multiprocessor."""
    arguments, const, options = common(plan, layer)
    grid = (multiprocessors(plan.device) * plan.config.programs_per_sm,)
    arguments = (*arguments, *FRAGMENTS, plan.model.num_kv_heads, const)
    return (Launch(stream_k_kernel, lambda plan: grid, arguments, options),)
