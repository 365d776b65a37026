"""Device functions of ``stream_k``: how programs share the tiles of keys, and who joins what they computed.

All tiles of a batch have one linear order, with four levels: sequences, their KV heads, the Q-Blocks of each,
and the tiles of keys that each Q-Block sees. Programs share the tiles evenly (Stream-K, arXiv 2301.03598; for
attention: LeanAttention, arXiv 2405.10480). Tile numbers are int64.

Fragments are softmax states of Q-Blocks that several programs share, and the last to finish joins them: this
is Stream-K's fix-up without waiting. A program's share of the tiles is contiguous, so it shares at most two
Q-Blocks with others: it continues the one in which its share begins, and begins the one in which its share
ends. Thus memory for two fragments a program serves every batch. A program begins at most one shared Q-Block,
whose counter is therefore that program's.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from attn_kernels.kernels.compile_params import QBlock
from attn_kernels.kernels.query_tile import load_lengths, make_q_block, valid_rows


class TileRange(NamedTuple):
    """A QBlock, and its tiles ``start .. stop - 1`` in the linear order."""

    block: QBlock
    start: Any
    stop: Any


@triton.jit
def tiles_per_q_block(query_lens, context_lens, window, const: tl.constexpr):
    """Tiles that each Q-Block of a sequence counts for, at least one.

    All count as many as the last one sees, or as many as a window can touch. A Q-Block without keys counts
    for one tile, so that its results are set to zero.
    """
    BLOCK_Q: tl.constexpr = const.block_q
    TILE_SIZE: tl.constexpr = const.tile_size
    tiles = tl.cdiv(context_lens, TILE_SIZE)
    if const.windowed:
        seen = tl.minimum(context_lens, window) + tl.minimum(query_lens, BLOCK_Q) - 1
        tiles = tl.minimum(tiles, (seen + TILE_SIZE - 2) // TILE_SIZE + 1)  # wherever in a tile it begins
    return tl.maximum(tiles, 1)


@triton.jit
def tiles_per_sequence(query_lens, context_lens, num_kv_heads, window, const: tl.constexpr):
    BLOCK_Q: tl.constexpr = const.block_q
    HEAD_SPLITS: tl.constexpr = const.head_splits
    blocks = tl.cdiv(query_lens, BLOCK_Q) * (num_kv_heads * HEAD_SPLITS)
    return blocks.to(tl.int64) * tiles_per_q_block(query_lens, context_lens, window, const)


@triton.jit
def count_tiles(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, const: tl.constexpr):
    CHUNK: tl.constexpr = 256  # sequences at a time
    tiles = tl.zeros([CHUNK], dtype=tl.int64)
    for first in tl.range(0, num_seqs, CHUNK, num_stages=1):
        seqs = first + tl.arange(0, CHUNK)
        query_lens, context_lens = load_lengths(cu_seqlens_q_ptr, seqused_k_ptr, seqs, num_seqs)
        tiles += tiles_per_sequence(query_lens, context_lens, num_kv_heads, window, const)
    return tl.sum(tiles, 0)


@triton.jit
def find_tile(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, number, const: tl.constexpr):
    CHUNK: tl.constexpr = 256
    BLOCK_Q: tl.constexpr = const.block_q
    HEAD_SPLITS: tl.constexpr = const.head_splits
    seqs_before = tl.zeros([CHUNK], dtype=tl.int32)
    tiles_before = tl.zeros([CHUNK], dtype=tl.int64)
    chunk_start = number * 0
    for first in tl.range(0, num_seqs, CHUNK, num_stages=1):
        seqs = first + tl.arange(0, CHUNK)
        query_lens, context_lens = load_lengths(cu_seqlens_q_ptr, seqused_k_ptr, seqs, num_seqs)
        tiles = tiles_per_sequence(query_lens, context_lens, num_kv_heads, window, const)
        is_before = chunk_start + tl.cumsum(tiles, 0) <= number
        seqs_before += is_before.to(tl.int32)
        tiles_before += tl.where(is_before, tiles, 0)
        chunk_start += tl.sum(tiles, 0)
    seq = tl.sum(seqs_before, 0)
    in_seq = number - tl.sum(tiles_before, 0)
    query_len = tl.load(cu_seqlens_q_ptr + seq + 1) - tl.load(cu_seqlens_q_ptr + seq)
    tiles_per_block = tiles_per_q_block(query_len, tl.load(seqused_k_ptr + seq), window, const)
    block_number = (in_seq // tiles_per_block).to(tl.int32)  # among those of all heads
    blocks = tl.cdiv(query_len, BLOCK_Q)
    head = block_number // blocks
    block = make_q_block(
        cu_seqlens_q_ptr,
        seqused_k_ptr,
        seq,
        block_number % blocks,
        head // HEAD_SPLITS,
        head % HEAD_SPLITS * const.heads,
        BLOCK_Q,
    )
    start = number - in_seq % tiles_per_block
    return TileRange(block, start, start + tiles_per_block)


@triton.jit
def fragment_index(program, begins, programs):
    """The number of a program's fragment: continuations first, then beginnings."""
    return program + begins.to(tl.int32) * programs


@triton.jit
def store_fragment(
    partial_ptr, max_ptr, sum_ptr, fragment, block, acc, row_max, row_sum, const: tl.constexpr
):
    """Write a softmax state as float32: [2, programs, block_m, head_padded], twice [2, programs, block_m]."""
    BLOCK_M: tl.constexpr = const.block_m
    HEAD_PADDED: tl.constexpr = const.head_padded
    valid = valid_rows(block, const)
    first = fragment.to(tl.int64) * BLOCK_M
    rows = tl.arange(0, BLOCK_M)
    offsets = rows[:, None] * HEAD_PADDED + tl.arange(0, HEAD_PADDED)[None, :]
    tl.store(max_ptr + first + rows, row_max, mask=valid)
    tl.store(sum_ptr + first + rows, row_sum, mask=valid)
    tl.store(partial_ptr + first * HEAD_PADDED + offsets, acc, mask=valid[:, None])


@triton.jit
def load_fragment(partial_ptr, max_ptr, sum_ptr, fragment, written, const: tl.constexpr):
    """Read what ``store_fragment`` wrote, past the L1 cache; rows that are not ``written`` are empty."""
    BLOCK_M: tl.constexpr = const.block_m
    HEAD_PADDED: tl.constexpr = const.head_padded
    first = fragment.to(tl.int64) * BLOCK_M
    rows = tl.arange(0, BLOCK_M)
    offsets = rows[:, None] * HEAD_PADDED + tl.arange(0, HEAD_PADDED)[None, :]
    partial_ptrs = partial_ptr + first * HEAD_PADDED + offsets
    row_max = tl.load(max_ptr + first + rows, mask=written, other=-1e38, cache_modifier=".cg")
    row_sum = tl.load(sum_ptr + first + rows, mask=written, other=0.0, cache_modifier=".cg")
    acc = tl.load(partial_ptrs, mask=written[:, None], other=0.0, cache_modifier=".cg")
    return acc, row_max, row_sum


@triton.jit
def is_last_to_arrive(counters_ptr, first, last):
    """Count the calling program, which has written its fragment, among the programs ``first .. last``.

    Returns whether all of them have been counted. If so, the caller may read their fragments past the L1
    cache. AMD GPUs do not order memory so: see ``stream_k.why_not``.
    """
    tl.debug_barrier()  # all threads write the fragment, one adds to the counter
    arrived = tl.atomic_add(counters_ptr + first, 1, sem="acq_rel", scope="gpu")
    is_last = arrived == last - first
    if is_last:
        tl.store(counters_ptr + first, 0)  # for the next launch
    return is_last


@triton.jit
def join_fragments(partial_ptr, max_ptr, sum_ptr, first, last, programs, block, const: tl.constexpr):
    """The softmax state of a Q-Block from the fragments of the programs ``first .. last``.

    They are joined in the order of the programs, whichever finished last, so every launch gives the same
    sums.
    """
    BLOCK_M: tl.constexpr = const.block_m
    AT_A_TIME: tl.constexpr = 4  # fragments whose loads are in flight together
    valid = valid_rows(block, const)
    end = last + tl.zeros([BLOCK_M], dtype=tl.int32)
    acc, row_max, row_sum = load_fragment(partial_ptr, max_ptr, sum_ptr, first + programs, valid, const)
    for begin in tl.range(first + 1, last + 1, AT_A_TIME, num_stages=1):
        for number in tl.static_range(AT_A_TIME):
            program = begin + number
            more, more_max, more_sum = load_fragment(
                partial_ptr, max_ptr, sum_ptr, program, valid & (program <= end), const
            )
            new_max = tl.maximum(row_max, more_max)
            rescale = tl.exp2(row_max - new_max)
            weight = tl.exp2(more_max - new_max)
            acc = acc * rescale[:, None] + more * weight[:, None]
            row_sum = row_sum * rescale + more_sum * weight
            row_max = new_max
    return acc, row_max, row_sum
