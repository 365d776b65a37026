"""Device functions that every paged-attention kernel variant needs."""

import triton
import triton.language as tl


@triton.jit
def find_sequence(cu_seqlens_q_ptr, num_seqs, q_block, BLOCK_Q: tl.constexpr):
    """The sequence that owns Q-Block number ``q_block``, by binary search.

    Sequence i's Q-Blocks start at ``cu_seqlens_q[i] // BLOCK_Q + i``: an upper bound of the blocks before
    it that needs no prefix sum over rounded lengths (arXiv 2511.11581, section 4.4).
    """
    low = 0
    high = num_seqs
    while high - low > 1:
        middle = (low + high) // 2
        first_block = tl.load(cu_seqlens_q_ptr + middle) // BLOCK_Q + middle
        low = tl.where(first_block <= q_block, middle, low)
        high = tl.where(first_block <= q_block, high, middle)
    return low


@triton.jit
def load_page_ids(table_row_ptr, tile_start, last_key, TILE_SIZE: tl.constexpr, PAGE_SIZE: tl.constexpr):
    """Page ids of the keys ``tile_start .. tile_start + TILE_SIZE - 1``.

    A scalar when a page holds whole tiles, else one id a key. Keys past ``last_key`` get its page, so
    that table entries which the sequence does not own are never read and every address stays valid.
    """
    if PAGE_SIZE % TILE_SIZE == 0:
        pages = tl.minimum(tile_start, last_key) // PAGE_SIZE
    elif TILE_SIZE % PAGE_SIZE == 0:
        page_in_tile = tl.arange(0, TILE_SIZE) // PAGE_SIZE
        pages = tl.minimum(tile_start // PAGE_SIZE + page_in_tile, last_key // PAGE_SIZE)
    else:
        pages = tl.minimum(tile_start + tl.arange(0, TILE_SIZE), last_key) // PAGE_SIZE
    return tl.load(table_row_ptr + pages)


@triton.jit
def tile_pointers(
    head_ptr,
    page_ids,
    tile_start,
    stride_page,
    stride_slot,
    TILE_SIZE: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
):
    """Pointers [TILE_SIZE, HEAD_PADDED] to a tile of one KV head.

    ``stride_page`` is int64, since a cache may exceed 2^31 elements; offsets inside a page are int32.
    """
    keys = tl.arange(0, TILE_SIZE)
    columns = tl.arange(0, HEAD_PADDED)
    page_offsets = page_ids.to(tl.int64) * stride_page
    if PAGE_SIZE % TILE_SIZE == 0:
        tile_ptr = head_ptr + page_offsets + (tile_start % PAGE_SIZE) * stride_slot
        pointers = tile_ptr + (keys[:, None] * stride_slot + columns[None, :])
    else:
        slots = keys % PAGE_SIZE if TILE_SIZE % PAGE_SIZE == 0 else (tile_start + keys) % PAGE_SIZE
        pointers = head_ptr + page_offsets[:, None] + (slots[:, None] * stride_slot + columns[None, :])
    return pointers


@triton.jit
def load_columns(pointers, HEAD_SIZE: tl.constexpr, HEAD_PADDED: tl.constexpr):
    """Load rows of a head, without any mask when the head size is a power of two."""
    if HEAD_SIZE == HEAD_PADDED:
        values = tl.load(pointers)
    else:
        values = tl.load(pointers, mask=(tl.arange(0, HEAD_PADDED) < HEAD_SIZE)[None, :], other=0.0)
    return values


@triton.jit
def row_mask(row_valid, HEAD_SIZE: tl.constexpr, HEAD_PADDED: tl.constexpr):
    """Mask [rows, HEAD_PADDED or 1] of the valid rows, and of the columns where a head has padding."""
    mask = row_valid[:, None]
    if HEAD_SIZE != HEAD_PADDED:
        mask = mask & (tl.arange(0, HEAD_PADDED) < HEAD_SIZE)[None, :]
    return mask


@triton.jit
def accumulate(scores, v, acc, row_max, row_sum, scale_log2):
    """One step of online softmax in base 2 and float32.

    ``row_max`` holds the largest score so far times ``scale_log2`` (softmax scale times log2(e)), so that
    scaling costs one fused multiply-add an element. Every row must have seen a finite score by now.
    """
    new_max = tl.maximum(row_max, tl.max(scores, 1) * scale_log2)
    weights = tl.exp2(scores * scale_log2 - new_max[:, None])
    rescale = tl.exp2(row_max - new_max)
    row_sum = row_sum * rescale + tl.sum(weights, 1)
    acc = tl.dot(weights.to(v.dtype), v, acc * rescale[:, None])
    return acc, new_max, row_sum
