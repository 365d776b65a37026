"""The tiles of keys of a whole batch in one linear order, found in the kernel from the batch's lengths.

The order has four levels: sequences, their KV heads, the Q-Blocks of each, and the tiles of keys that each
Q-Block sees. Programs share the tiles evenly (Stream-K, arXiv 2301.03598; for attention: LeanAttention, arXiv
2405.10480). Tile numbers are int64.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from attn_kernels.kernels.compile_params import QBlock
from attn_kernels.kernels.query_tile import make_q_block


class TileRange(NamedTuple):
    """A QBlock, and its tiles ``start .. stop - 1`` in the linear order."""

    block: QBlock
    start: Any
    stop: Any


@triton.jit
def load_lengths(cu_seqlens_q_ptr, seqused_k_ptr, seqs, num_seqs):
    """Query tokens and keys of sequences; 0 of those that do not exist."""
    exists = seqs < num_seqs
    starts = tl.load(cu_seqlens_q_ptr + seqs, mask=exists, other=0)
    stops = tl.load(cu_seqlens_q_ptr + seqs + 1, mask=exists, other=0)
    keys = tl.load(seqused_k_ptr + seqs, mask=exists, other=0)
    return stops - starts, keys


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
    """Tiles of all Q-Blocks and heads of sequences, int64."""
    BLOCK_Q: tl.constexpr = const.block_q
    HEAD_SPLITS: tl.constexpr = const.head_splits
    blocks = tl.cdiv(query_lens, BLOCK_Q) * (num_kv_heads * HEAD_SPLITS)
    return blocks.to(tl.int64) * tiles_per_q_block(query_lens, context_lens, window, const)


@triton.jit
def count_tiles(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, num_kv_heads, window, const: tl.constexpr):
    """Tiles of the whole batch, int64."""
    CHUNK: tl.constexpr = 256  # sequences at a time
    tiles = tl.zeros([CHUNK], dtype=tl.int64)
    for first in tl.range(0, num_seqs, CHUNK, num_stages=1):
        seqs = first + tl.arange(0, CHUNK)
        query_lens, context_lens = load_lengths(cu_seqlens_q_ptr, seqused_k_ptr, seqs, num_seqs)
        tiles += tiles_per_sequence(query_lens, context_lens, num_kv_heads, window, const)
    return tl.sum(tiles, 0)


@triton.jit
def find_tile(
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    num_seqs,
    num_kv_heads,
    window,
    number,
    const: tl.constexpr,
):
    """The TileRange that holds tile ``number`` of the batch."""
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
