"""Segments of a context: how many there are, their partial results, and the kernel that joins these.

Several programs read the segments of one context in parallel ("The Anatomy of a Triton Attention Kernel",
arXiv 2511.11581, section 4.5 and listing 5; also Flash-Decoding's split over keys and values, Dao et al.,
2023).

A config has room for some number of segments. With ``device_segments``, the GPU counts how many of them the
batch needs for which a captured graph is replayed: a Triton function finds the batch's row in the generated
module (docs/in_kernel.md), and the host knows how many segments each row stands for. One program does so once
a plan, and the kernels of all layers read the count.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, OfLayer, OfPlan, Plan
from attn_kernels.kernels.arguments import (
    CU_SEQLENS_Q,
    JIT_OPTIONS,
    NUM_SEQS,
    ONE_PROGRAM_OPTIONS,
    SEQUSED_K,
    Specialisation,
    one_program_grid,
)
from attn_kernels.kernels.compile_params import CompileParams, ReduceParams
from attn_kernels.kernels.query_tile import (
    first_tile,
    in_base_2,
    load_lengths,
    make_q_block,
    query_heads,
    search,
    store_normalised,
    valid_rows,
)
from attn_kernels.kernels.variant import Scratch, ScratchSizes


class BatchFeatures(NamedTuple):
    """The features that lengths determine, of the sequences that have query tokens."""

    num_seqs: Any
    num_query_tokens: Any
    num_kv_tokens: Any  # int64: contexts may share pages; the others are int32
    max_query_len: Any
    max_seq_len: Any


@triton.jit
def batch_features(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs):
    """The BatchFeatures of a batch, from int32 [num_seqs + 1] and int32 [num_seqs]."""
    CHUNK: tl.constexpr = 256  # sequences at a time
    with_queries = tl.zeros([CHUNK], dtype=tl.int32)
    queries = tl.zeros([CHUNK], dtype=tl.int32)
    keys = tl.zeros([CHUNK], dtype=tl.int64)
    most_queries = tl.zeros([CHUNK], dtype=tl.int32)
    most_keys = tl.zeros([CHUNK], dtype=tl.int32)
    for first in tl.range(0, num_seqs, CHUNK, num_stages=1):
        seqs = first + tl.arange(0, CHUNK)
        query_lens, context_lens = load_lengths(cu_seqlens_q_ptr, seqused_k_ptr, seqs, num_seqs)
        context_lens = tl.where(query_lens > 0, context_lens, 0)
        with_queries += (query_lens > 0).to(tl.int32)
        queries += query_lens
        keys += context_lens
        most_queries = tl.maximum(most_queries, query_lens)
        most_keys = tl.maximum(most_keys, context_lens)
    return BatchFeatures(
        tl.sum(with_queries, 0),
        tl.sum(queries, 0),
        tl.sum(keys, 0),
        tl.max(most_queries, 0),
        tl.max(most_keys, 0),
    )


@triton.jit
def pick(values: tl.constexpr, place):
    """The value at a place of a tuple of integers (int32)."""
    value = tl.full([], values[0], tl.int32)
    for other in tl.static_range(1, len(values)):
        value = tl.where(place == other, values[other], value)
    return value


@triton.jit(**JIT_OPTIONS)
def count_segments_kernel(
    num_segments_ptr,
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    num_seqs,
    num_query_heads,
    num_kv_heads,
    head_size,
    block_size,
    kv_element_size,
    most,
    row: tl.constexpr,
    segments_by_row: tl.constexpr,
):
    """Store into how many segments the batch's contexts are split, 1 to ``most``; one program.

    ``row``: a generated function, which takes features by their names; None where a kernel is compiled for no
    device in particular. ``segments_by_row``: the numbers that these rows stand for, a tuple.
    """
    count = most
    if row is not None:
        features = batch_features(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs)
        number = row(
            num_seqs=features.num_seqs,
            num_query_tokens=features.num_query_tokens,
            num_kv_tokens=features.num_kv_tokens,
            max_query_len=features.max_query_len,
            max_seq_len=features.max_seq_len,
            num_query_heads=num_query_heads,
            num_kv_heads=num_kv_heads,
            head_size=head_size,
            block_size=block_size,
            kv_element_size=kv_element_size,
        )
        count = pick(segments_by_row, number)
    tl.store(num_segments_ptr, tl.maximum(tl.minimum(count, most), 1))


def specialise_count_segments(config: Config) -> tuple[Specialisation, ...]:
    if not config.device_segments:
        return ()
    constants = {"row": None, "segments_by_row": None}
    return (Specialisation(count_segments_kernel, constants=constants, options=ONE_PROGRAM_OPTIONS),)


def bind_count_segments(plan: Plan, num_segments: OfPlan) -> tuple[Launch, ...]:
    if plan.segments_by_row is None:
        return ()
    arguments = (
        num_segments,
        CU_SEQLENS_Q,
        SEQUSED_K,
        NUM_SEQS,
        plan.model.num_query_heads,
        plan.model.num_kv_heads,
        plan.model.head_size,
        plan.model.block_size,
        plan.model.kv_element_size,
        plan.config.num_segments,
        *plan.segments_by_row,
    )
    return (Launch(count_segments_kernel, one_program_grid, arguments, ONE_PROGRAM_OPTIONS),)


SEGMENT_PARAMETERS = frozenset({"num_segments", "device_segments"})
# One warp: no sum has to cross warps, and there is a program for every token and head.
REDUCE_OPTIONS = {"num_warps": 1, "enable_fp_fusion": True}


@triton.jit
def segments_used(num_segments_ptr, NUM_SEGMENTS: tl.constexpr):
    """Into how many segments contexts are split: what the device has counted, or ``NUM_SEGMENTS``."""
    if num_segments_ptr is None:
        return NUM_SEGMENTS
    else:
        return tl.load(num_segments_ptr)


@triton.jit
def segment_keys(block, window, segment, segments, tile_size, WINDOWED: tl.constexpr):
    """The keys ``start .. stop - 1`` of a QBlock in one of so many segments.

    A segment holds whole tiles, except at the end of the context. Where a context has fewer tiles than
    there are segments, the last segments are empty.
    """
    first_position = block.context_len + block.first_query
    start = first_tile(first_position, window, tile_size, WINDOWED)
    stop = first_position + block.num_queries
    tiles = tl.cdiv(tl.cdiv(stop - start, tile_size), segments)
    start += segment * tiles * tile_size
    return start, tl.minimum(stop, start + tiles * tile_size)


@triton.jit
def has_keys(block, window, segment_ids, segments, tile_size, WINDOWED: tl.constexpr):
    starts, stops = segment_keys(block, window, segment_ids, segments, tile_size, WINDOWED)
    return (segment_ids < segments) & (starts < stops)


@triton.jit
def store_segment(
    out,
    partials,
    num_segments_ptr,
    block,
    segment,
    segments,
    num_query_heads,
    scoring,
    state,
    const: tl.constexpr,
):
    """Write the softmax state of a segment for ``reduce_kernel``, in float32.

    Its tensors are [tokens, heads, segments, head_padded] and twice [tokens, heads, segments]. Where the
    device has counted one segment, write the results instead.
    """
    acc, row_max, row_sum = state
    if num_segments_ptr is not None and segments == 1:
        store_normalised(out, block, scoring, acc, row_max, row_sum, const)
    else:
        partial_ptr, max_ptr, sum_ptr = partials
        valid = valid_rows(block, const)
        tokens = block.first_token + tl.arange(0, const.block_m) // const.heads
        heads = query_heads(block, const)
        places = (tokens * num_query_heads + heads) * const.num_segments + segment
        tl.store(max_ptr + places, row_max, mask=valid)
        tl.store(sum_ptr + places, row_sum, mask=valid)
        columns = tl.arange(0, const.head_padded)
        partial_ptrs = partial_ptr + (places * const.head_padded)[:, None] + columns[None, :]
        tl.store(partial_ptrs, acc, mask=valid[:, None])


@triton.jit(**JIT_OPTIONS)
def reduce_kernel(
    out_ptr,
    partial_ptr,
    max_ptr,
    sum_ptr,
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    sinks_ptr,
    num_segments_ptr,
    window,
    num_seqs,
    block_q,
    tile_size,
    stride_out_token,
    stride_out_head,
    const: tl.constexpr,
):
    """Join the segments of one query token and head; ``const`` is a ReduceParams.

    ``block_q`` and ``tile_size`` are those of the kernel that wrote the segments. They are run-time
    arguments, so that configs of different tiles share a binary.
    """
    NUM_SEGMENTS: tl.constexpr = const.num_segments
    PADDED: tl.constexpr = triton.next_power_of_2(NUM_SEGMENTS)
    HEAD_PADDED: tl.constexpr = const.head_padded
    CHUNK: tl.constexpr = min(PADDED, 4096 // HEAD_PADDED)  # segments at a time: 128 registers a thread
    segments = segments_used(num_segments_ptr, NUM_SEGMENTS)
    if num_segments_ptr is not None and segments == 1:  # then store_segment wrote the results
        return
    token = tl.program_id(0)
    head = tl.program_id(1)
    seq = search(cu_seqlens_q_ptr, num_seqs, token)
    query = token - tl.load(cu_seqlens_q_ptr + seq)
    block = make_q_block(cu_seqlens_q_ptr, seqused_k_ptr, seq, query // block_q, head, 0, block_q)
    if query < 0 or query - block.first_query >= block.num_queries:  # a token of no sequence
        return
    segment_ids = tl.arange(0, PADDED)
    written = has_keys(block, window, segment_ids, segments, tile_size, const.windowed)
    first = (token.to(tl.int64) * tl.num_programs(1) + head) * NUM_SEGMENTS
    maxima = tl.load(max_ptr + first + segment_ids, mask=written, other=-1e38)
    sums = tl.load(sum_ptr + first + segment_ids, mask=written, other=0.0)
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
        # Names of their own: a name that a loop assigns keeps its shape.
        chunk_ids = chunk + tl.arange(0, CHUNK)
        chunk_written = has_keys(block, window, chunk_ids, segments, tile_size, const.windowed)
        weights = tl.exp2(tl.load(max_ptr + first + chunk_ids, mask=chunk_written, other=-1e38) - largest)
        partial_ptrs = partial_ptr + ((first + chunk_ids) * HEAD_PADDED)[:, None] + columns[None, :]
        partials = tl.load(partial_ptrs, mask=chunk_written[:, None], other=0.0)
        result += tl.sum(partials * weights[:, None], 0)
    result /= total
    unit: tl.constexpr = const.query_unit
    out_ptr += (token.to(tl.int64) * stride_out_token + head.to(tl.int64) * stride_out_head) * unit
    tl.store(out_ptr + columns, result.to(out_ptr.dtype.element_ty), mask=columns < const.head_size)


def take_partials(scratch: Scratch, sizes: ScratchSizes) -> tuple[Tensor, ...]:
    """The tensors of ``store_segment``, and the count of segments if the device makes it."""
    num_segments = (scratch.num_segments(sizes),) if sizes.device_segments else ()
    return (*scratch.partials(sizes), *num_segments)


def absent_num_segments(config: Config) -> dict[str, None]:
    """The constants of kernels that use all segments, whose number the device does not count."""
    return {} if config.device_segments else {"num_segments_ptr": None}


def specialise_reduce(config: Config) -> Specialisation:
    return Specialisation(
        reduce_kernel, constants=absent_num_segments(config), options=REDUCE_OPTIONS, const_of=ReduceParams.of
    )


def bind_reduce(
    layer: Layer, partials: Sequence[OfPlan], num_segments: OfPlan | None, const: CompileParams
) -> Launch:
    """The launch that joins all segments into the layer's output.

    Args:
        partials: the tensors of ``store_segment``. num_segments: the device's count, None if it makes none.
        const: of the kernel that writes the segments.
    """
    arguments = (
        OfLayer("out"),
        *partials,
        CU_SEQLENS_Q,
        SEQUSED_K,
        None if layer.sinks is None else OfLayer("sinks"),
        num_segments,
        layer.sliding_window or 0,
        NUM_SEQS,
        const.block_q,
        const.tile_size,
        *(n // const.query_unit for n in layer.out.stride()[:2]),
        ReduceParams.of(const),
    )

    def programs(plan: Plan) -> tuple[int, int]:
        return plan.num_query_tokens, plan.model.num_query_heads

    return Launch(reduce_kernel, programs, arguments, REDUCE_OPTIONS)
