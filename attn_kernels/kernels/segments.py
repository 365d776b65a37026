"""What kernels that split a context share: the segments, their partial results, and the kernel that joins
them.

"The Anatomy of a Triton Attention Kernel", arXiv 2511.11581, section 4.5 and listing 5 (parallel tiled
softmax); also Flash-Decoding's split over keys and values (Dao et al., 2023).
"""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, OfLayer, OfPlan, Plan
from attn_kernels.kernels.arguments import CU_SEQLENS_Q, JIT_OPTIONS, NUM_SEQS, SEQUSED_K, Specialisation
from attn_kernels.kernels.compile_params import CompileParams
from attn_kernels.kernels.fragments import finish
from attn_kernels.kernels.pages import search
from attn_kernels.kernels.rows import first_tile, in_base_2, place, query_heads, valid_rows
from attn_kernels.kernels.scratch import Needs, Scratch

# One warp: no sum has to cross warps, and there is a program for every token and head.
REDUCE_OPTIONS = {"num_warps": 1, "enable_fp_fusion": True}


@triton.jit
def segments_used(decided_ptr, const: tl.constexpr):
    """Into how many segments contexts are split: what is decided on the device, or all that there are."""
    if decided_ptr is None:
        segments: tl.constexpr = const.num_segments
        return segments
    else:
        return tl.load(decided_ptr)


@triton.jit
def segment_keys(block, window, segment, segments, const: tl.constexpr):
    """The keys ``start .. stop - 1`` of one of so many segments of a Block, whole tiles but for the last;
    empty from some segment on, where a context has fewer tiles than there are segments."""
    first_position = block.context_len + block.first_query
    start = first_tile(first_position, window, const)
    stop = first_position + block.num_queries
    tiles = tl.cdiv(tl.cdiv(stop - start, const.tile_size), segments)
    start += segment * tiles * const.tile_size
    return start, tl.minimum(stop, start + tiles * const.tile_size)


@triton.jit
def has_keys(block, window, some, segments, const: tl.constexpr):
    """Which of some segments of a Block exist and have keys."""
    starts, stops = segment_keys(block, window, some, segments, const)
    return (some < segments) & (starts < stops)


@triton.jit
def store_partial(
    partial_ptr,
    max_ptr,
    sum_ptr,
    block,
    segment,
    num_query_heads,
    acc,
    row_max,
    row_sum,
    const: tl.constexpr,
):
    """Write the softmax state of a segment: [tokens, heads, segments, head_padded] and twice
    [tokens, heads, segments], in float32."""
    valid = valid_rows(block, const)
    tokens = block.first_token + tl.arange(0, const.block_m) // const.heads
    heads = query_heads(block, const)
    places = (tokens * num_query_heads + heads) * const.num_segments + segment
    tl.store(max_ptr + places, row_max, mask=valid)
    tl.store(sum_ptr + places, row_sum, mask=valid)
    columns = tl.arange(0, const.head_padded)
    partial_ptrs = partial_ptr + (places * const.head_padded)[:, None] + columns[None, :]
    tl.store(partial_ptrs, acc, mask=valid[:, None])


@triton.jit
def store_segment(
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
    num_query_heads,
    scoring,
    acc,
    row_max,
    row_sum,
    const: tl.constexpr,
):
    """Write the softmax state of a segment for ``reduce_kernel``, or the results where the device decided
    that it is the only one."""
    if decided_ptr is not None and segments == 1:
        finish(out_ptr, stride_out_token, stride_out_head, block, scoring, acc, row_max, row_sum, const)
    else:
        store_partial(
            partial_ptr, max_ptr, sum_ptr, block, segment, num_query_heads, acc, row_max, row_sum, const
        )


@triton.jit(**JIT_OPTIONS)
def reduce_kernel(
    out_ptr,
    partial_ptr,
    max_ptr,
    sum_ptr,
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    sinks_ptr,
    decided_ptr,
    window,
    num_seqs,
    stride_out_token,
    stride_out_head,
    const: tl.constexpr,
):
    """Join the segments of one query token and head."""
    SEGMENTS: tl.constexpr = const.num_segments
    PADDED: tl.constexpr = triton.next_power_of_2(SEGMENTS)
    HEAD_PADDED: tl.constexpr = const.head_padded
    CHUNK: tl.constexpr = min(PADDED, 4096 // HEAD_PADDED)  # segments at a time: 128 registers a thread
    BLOCK_Q: tl.constexpr = const.block_m // const.heads
    segments = segments_used(decided_ptr, const)
    if decided_ptr is not None and segments == 1:  # then store_segment wrote the results
        return
    token = tl.program_id(0)
    head = tl.program_id(1)
    seq = search(cu_seqlens_q_ptr, num_seqs, token)
    query = token - tl.load(cu_seqlens_q_ptr + seq)
    block = place(cu_seqlens_q_ptr, seqused_k_ptr, seq, query // BLOCK_Q, head, 0, const)
    if query % BLOCK_Q >= block.num_queries:  # a token of no sequence
        return
    every = tl.arange(0, PADDED)
    filled = has_keys(block, window, every, segments, const)
    first = (token.to(tl.int64) * tl.num_programs(1) + head) * SEGMENTS
    maxima = tl.load(max_ptr + first + every, mask=filled, other=-1e38)
    sums = tl.load(sum_ptr + first + every, mask=filled, other=0.0)
    largest = tl.max(maxima, 0)
    if sinks_ptr is not None:
        sink = in_base_2(tl.load(sinks_ptr + head))
        largest = tl.maximum(largest, sink)
    total = tl.sum(sums * tl.exp2(maxima - largest), 0)
    if sinks_ptr is not None:
        total += tl.exp2(sink - largest)

    columns = tl.arange(0, HEAD_PADDED)
    result = tl.zeros([HEAD_PADDED], dtype=tl.float32)
    for chunk in tl.range(0, PADDED, CHUNK):
        some = chunk + tl.arange(0, CHUNK)
        written = has_keys(block, window, some, segments, const)
        weights = tl.exp2(tl.load(max_ptr + first + some, mask=written, other=-1e38) - largest)
        partial_ptrs = partial_ptr + ((first + some) * HEAD_PADDED)[:, None] + columns[None, :]
        partials = tl.load(partial_ptrs, mask=written[:, None], other=0.0)
        result += tl.sum(partials * weights[:, None], 0)
    result /= total
    unit: tl.constexpr = const.query_unit
    out_ptr += (token.to(tl.int64) * stride_out_token + head.to(tl.int64) * stride_out_head) * unit
    tl.store(out_ptr + columns, result.to(out_ptr.dtype.element_ty), mask=columns < const.head_size)


def partials(scratch: Scratch, needs: Needs) -> tuple[Tensor, ...]:
    """What ``store_partial`` writes, and what ``segments_used`` reads if that is decided on the device."""
    decided = (scratch.decided(),) if needs.device_segments else ()
    return (*scratch.partials(needs), *decided)


def undecided(config: Config) -> dict[str, None]:
    """What kernels are compiled for where all segments are used."""
    return {} if config.device_segments else {"decided_ptr": None}


def specialise_reduce(config: Config) -> Specialisation:
    return Specialisation(reduce_kernel, constants=undecided(config), options=REDUCE_OPTIONS)


def tokens_and_heads(plan: Plan) -> tuple[int, int]:
    return plan.num_query_tokens, plan.model.num_query_heads


def bind_reduce(
    layer: Layer, partials: Sequence[OfPlan], decided: OfPlan | None, const: CompileParams
) -> Launch:
    """The launch that joins all segments into the layer's output."""
    arguments = (
        OfLayer("out"),
        *partials,
        CU_SEQLENS_Q,
        SEQUSED_K,
        None if layer.sinks is None else OfLayer("sinks"),
        decided,
        layer.sliding_window or 0,
        NUM_SEQS,
        *(n // const.query_unit for n in layer.out.stride()[:2]),
        const,
    )
    return Launch(reduce_kernel, tokens_and_heads, arguments, REDUCE_OPTIONS)
