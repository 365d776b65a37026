"""A batch's work, measured in the kernel from the batch's own lengths.

The work of a batch is a line of tiles: sequence after sequence, in each KV head after KV head, in each
Q-Block after Q-Block, and of each Q-Block the tiles of keys that it sees. Programs share the line evenly
(Stream-K, arXiv 2301.03598; for attention: LeanAttention, arXiv 2405.10480). Positions on it are int64.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from attn_kernels.kernels.compile_params import Block
from attn_kernels.kernels.rows import place


class Piece(NamedTuple):
    """What a position on the line belongs to: a Block, whose tiles are at ``start .. stop - 1``."""

    block: Block
    start: Any
    stop: Any


@triton.jit
def lengths(cu_seqlens_q_ptr, seqused_k_ptr, seqs, num_seqs):
    """Query tokens and keys of sequences; none of those that do not exist."""
    exists = seqs < num_seqs
    starts = tl.load(cu_seqlens_q_ptr + seqs, mask=exists, other=0)
    stops = tl.load(cu_seqlens_q_ptr + seqs + 1, mask=exists, other=0)
    keys = tl.load(seqused_k_ptr + seqs, mask=exists, other=0)
    return stops - starts, keys


@triton.jit
def tiles_of(query_lens, context_lens, window, const: tl.constexpr):
    """Tiles that each Q-Block of a sequence is charged: those of its last one, or what a window can reach,
    and at least one, so that queries without keys get their zeros."""
    BLOCK_Q: tl.constexpr = const.block_m // const.heads
    TILE_SIZE: tl.constexpr = const.tile_size
    tiles = tl.cdiv(context_lens, TILE_SIZE)
    if const.windowed:
        seen = tl.minimum(context_lens, window) + tl.minimum(query_lens, BLOCK_Q) - 1
        tiles = tl.minimum(tiles, (seen + TILE_SIZE - 2) // TILE_SIZE + 1)  # wherever in a tile it begins
    return tl.maximum(tiles, 1)


@triton.jit
def work_of(query_lens, context_lens, num_kv_heads, window, const: tl.constexpr):
    """Tiles of whole sequences."""
    BLOCK_Q: tl.constexpr = const.block_m // const.heads
    HEAD_SPLITS: tl.constexpr = (const.queries_per_kv + const.heads - 1) // const.heads
    blocks = tl.cdiv(query_lens, BLOCK_Q) * (num_kv_heads * HEAD_SPLITS)
    return blocks.to(tl.int64) * tiles_of(query_lens, context_lens, window, const)


@triton.jit
def length_of_line(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, const: tl.constexpr):
    """Tiles of the whole batch."""
    CHUNK: tl.constexpr = 256  # sequences at a time
    work = tl.zeros([CHUNK], dtype=tl.int64)
    for first in tl.range(0, num_seqs, CHUNK, num_stages=1):
        seqs = first + tl.arange(0, CHUNK)
        query_lens, context_lens = lengths(cu_seqlens_q_ptr, seqused_k_ptr, seqs, num_seqs)
        work += work_of(query_lens, context_lens, num_kv_heads, window, const)
    return tl.sum(work, 0)


@triton.jit
def locate(
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    num_seqs,
    num_kv_heads,
    window,
    position,
    const: tl.constexpr,
):
    """The Piece that holds a position of the line."""
    CHUNK: tl.constexpr = 256
    BLOCK_Q: tl.constexpr = const.block_m // const.heads
    HEAD_SPLITS: tl.constexpr = (const.queries_per_kv + const.heads - 1) // const.heads
    passed = tl.zeros([CHUNK], dtype=tl.int32)
    work_passed = tl.zeros([CHUNK], dtype=tl.int64)
    before = position * 0
    for first in tl.range(0, num_seqs, CHUNK, num_stages=1):
        seqs = first + tl.arange(0, CHUNK)
        query_lens, context_lens = lengths(cu_seqlens_q_ptr, seqused_k_ptr, seqs, num_seqs)
        work = work_of(query_lens, context_lens, num_kv_heads, window, const)
        is_passed = before + tl.cumsum(work, 0) <= position
        passed += is_passed.to(tl.int32)
        work_passed += tl.where(is_passed, work, 0)
        before += tl.sum(work, 0)
    seq = tl.sum(passed, 0)
    in_seq = position - tl.sum(work_passed, 0)
    query_len = tl.load(cu_seqlens_q_ptr + seq + 1) - tl.load(cu_seqlens_q_ptr + seq)
    tiles = tiles_of(query_len, tl.load(seqused_k_ptr + seq), window, const)
    number = (in_seq // tiles).to(tl.int32)
    blocks = tl.cdiv(query_len, BLOCK_Q)
    head = number // blocks
    block = place(
        cu_seqlens_q_ptr,
        seqused_k_ptr,
        seq,
        number % blocks,
        head // HEAD_SPLITS,
        head % HEAD_SPLITS * const.heads,
        const,
    )
    start = position - in_seq % tiles
    return Piece(block, start, start + tiles)
