"""Stream-K: a fixed number of programs that share the tiles of any batch evenly, in one launch.

It is for captured graphs: capture fixes only the number of programs, and each computes its share from the
lengths in memory. ``stream_k_device`` names the sources.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels.arguments import (
    JIT_OPTIONS,
    Specialisation,
    common_arguments,
    multiprocessors,
    of_workspace,
)
from attn_kernels.kernels.compile_params import PagedCache, Scoring
from attn_kernels.kernels.hopper_limits import bind_hopper, bind_schedules, take_schedule
from attn_kernels.kernels.query_tile import (
    attend_cache,
    first_tile,
    load_queries,
    load_scales,
    store_normalised,
)
from attn_kernels.kernels.schedule import schedule_kernel
from attn_kernels.kernels.stream_k_device import (
    count_tiles,
    find_tile,
    fragment_index,
    is_last_to_arrive,
    join_fragments,
    store_fragment,
)
from attn_kernels.kernels.variant import ConfigGrid, Scratch, ScratchMaxima, ScratchSizes, Variant

*FRAGMENTS, SCHEDULE = map(of_workspace, range(5))


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
    num_tiles = count_tiles(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, const)
    share = tl.cdiv(num_tiles, tl.num_programs(0))
    tile = tl.program_id(0) * share
    end = tl.minimum(tile + share, num_tiles)
    scoring = Scoring(factor, cap, window, slopes_ptr, sinks_ptr)
    scales = load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr)
    k = (k_ptr, stride_k_page, stride_k_slot, stride_k_head)
    v = (v_ptr, stride_v_page, stride_v_slot, stride_v_head)
    cache = PagedCache(block_table_ptr, stride_table, k, v)
    q = (q_ptr, stride_q_token, stride_q_head)
    out = (out_ptr, stride_out_token, stride_out_head)
    while tile < end:
        tiles = find_tile(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, tile, const)
        block = tiles.block
        next_tile = tl.minimum(tiles.stop, end)
        queries = load_queries(q, block, scoring, const)
        leftmost = first_tile(queries.first_position, window, const.tile_size, const.windowed)
        start = leftmost + (tile - tiles.start).to(tl.int32) * const.tile_size
        stop = leftmost + (next_tile - tiles.start).to(tl.int32) * const.tile_size
        stop = tl.minimum(stop, queries.last_position + 1)
        acc, row_max, row_sum = attend_cache(
            block, queries, cache, scoring, scales, start, stop, False, const
        )
        if next_tile - tile == tiles.stop - tiles.start:
            store_normalised(out, block, scoring, acc, row_max, row_sum, const)
        else:
            programs = tl.num_programs(0)
            fragment = fragment_index(tl.program_id(0), tile == tiles.start, programs)
            store_fragment(partial_ptr, max_ptr, sum_ptr, fragment, block, acc, row_max, row_sum, const)
            first = (tiles.start // share).to(tl.int32)
            last = ((tiles.stop - 1) // share).to(tl.int32)
            if is_last_to_arrive(counters_ptr, first, last):
                acc, row_max, row_sum = join_fragments(
                    partial_ptr, max_ptr, sum_ptr, first, last, programs, block, const
                )
                store_normalised(out, block, scoring, acc, row_max, row_sum, const)
        tile = next_tile


def why_not() -> str | None:
    """Return why this vendor's GPUs cannot join fragments; None where they can.

    Triton's barrier (3.6 and 3.9) compiles to a bare ``s_barrier`` for AMD. So one wavefront may count its
    program as arrived before stores of another wavefront have reached memory.
    """
    return "AMD GPUs do not order a program's stores before its arrival" if torch.version.hip else None


def take_scratch(scratch: Scratch, sizes: ScratchSizes) -> tuple[Tensor, ...]:
    """Counters, which are zero between launches, and fragments. Raises ValueError on AMD GPUs."""
    reason = why_not()
    if reason is not None:
        raise ValueError(f"config.variant is 'stream_k', but {reason}: use another")
    fragments = scratch.fragments(multiprocessors(scratch.device) * sizes.programs_per_sm, sizes)
    return (*fragments, *take_schedule(scratch, sizes))


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    return (Specialisation(stream_k_kernel),)


def bind_once(plan: Plan) -> tuple[Launch, ...]:
    return bind_schedules(plan, SCHEDULE)


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """One launch, of ``programs_per_sm`` programs a multiprocessor.

    It is of the Hopper kernel if the config has descriptors and the layer allows it.
    """
    by_hopper = bind_hopper(plan, layer, SCHEDULE, fragments=FRAGMENTS)
    if by_hopper:
        return by_hopper
    arguments, const, options = common_arguments(plan, layer)
    grid = (multiprocessors(plan.device) * plan.config.programs_per_sm,)
    arguments = (*arguments, *FRAGMENTS, plan.model.num_kv_heads, const)
    return (Launch(stream_k_kernel, lambda plan: grid, arguments, options),)


def scratch_maxima(config: Config, device: torch.device) -> ScratchMaxima:
    programs = multiprocessors(device) * config.programs_per_sm
    return ScratchMaxima(fragment_rows=programs * config.block_m)


VARIANT = Variant(
    name="stream_k",
    kernels=(stream_k_kernel, schedule_kernel),
    bind=bind,
    bind_once=bind_once,
    specialise=specialise,
    parameters=frozenset({"programs_per_sm", "descriptors"}),
    scratch=take_scratch,
    scratch_maxima=scratch_maxima,
    samples=(Config("stream_k", block_m=16, tile_size=64, programs_per_sm=2),),
    # Without descriptors, choose.capture picks its config for captured graphs. 32 and 64 rows are for drafts
    # and for many query heads a KV head: one tile then holds all of a sequence's queries.
    grids=(
        ConfigGrid(M=(16, 32), T=(64, 128), W=(4,), S=(2,), P=(1, 2), D=(1,)),
        ConfigGrid(M=(64,), T=(64,), W=(4,), S=(2,), D=(1,)),
    ),
)
