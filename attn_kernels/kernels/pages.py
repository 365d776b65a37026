"""Device functions that find sequences, and load tiles of keys and values from pages."""

import triton
import triton.language as tl

from attn_kernels.kernels.compile_params import SequenceKeys


@triton.jit
def search(starts_ptr, count, value, base=0, BLOCK_Q: tl.constexpr = None):
    """The last i below ``count`` with ``starts[i] <= value``, by binary search; 0 if there is none.

    Starts ascend. With ``BLOCK_Q``, start i is the number of sequence i's first Q-Block, as
    ``find_sequence`` counts.
    """
    low = 0
    high = count
    while high - low > 1:
        middle = (low + high) // 2
        start = tl.load(starts_ptr + middle)
        if BLOCK_Q is not None:
            start = (start - base) // BLOCK_Q + middle
        low = tl.where(start <= value, middle, low)
        high = tl.where(start <= value, high, middle)
    return low


@triton.jit
def find_sequence(cu_seqlens_q_ptr, num_seqs, q_block, base, BLOCK_Q: tl.constexpr):
    """The sequence that owns Q-Block number ``q_block`` of the batch.

    Sequence i's Q-Blocks start at number ``(cu_seqlens_q[i] - base) // BLOCK_Q + i``, where ``base`` is
    ``cu_seqlens_q[0]``. This is an upper bound of the blocks before it, and needs no prefix sum over rounded
    lengths (arXiv 2511.11581, section 4.4).
    """
    return search(cu_seqlens_q_ptr, num_seqs, q_block, base, BLOCK_Q)


@triton.jit
def sequence_keys(cache, seq, kv_head, first, last, const: tl.constexpr):
    """The SequenceKeys ``first .. last`` of one sequence and KV head."""
    unit: tl.constexpr = const.cache_unit // 2 if const.paired else const.cache_unit
    k_ptr, stride_k_page, stride_k_slot, stride_k_head = cache.k
    v_ptr, stride_v_page, stride_v_slot, stride_v_head = cache.v
    if const.paired:
        k_ptr = k_ptr.to(tl.pointer_type(tl.uint16), bitcast=True)
        v_ptr = v_ptr.to(tl.pointer_type(tl.uint16), bitcast=True)
    k_page = stride_k_page.to(tl.int64) * unit
    k_slot = stride_k_slot * unit
    if const.same_kv_strides:
        v_page = k_page
        v_slot = k_slot
    else:
        v_page = stride_v_page.to(tl.int64) * unit
        v_slot = stride_v_slot * unit
    return SequenceKeys(
        cache.table_ptr + seq.to(tl.int64) * cache.stride_table,
        k_ptr + kv_head * stride_k_head * unit,
        v_ptr + kv_head * stride_v_head * unit,
        k_page,
        k_slot,
        v_page,
        v_slot,
        first,
        last,
    )


@triton.jit
def load_page_ids(table_row_ptr, tile_start, first, last, const: tl.constexpr):
    """Page ids of the keys ``tile_start .. tile_start + tile_size - 1``.

    A scalar where a page holds whole tiles, else [tile_size]. A key outside ``first .. last`` gets the page
    of the nearest key inside. So no table entry is used that the sequence does not own, and every address is
    valid.
    """
    TILE_SIZE: tl.constexpr = const.tile_size
    PAGE_SIZE: tl.constexpr = const.page_size
    offsets = tl.arange(0, TILE_SIZE)
    if PAGE_SIZE % TILE_SIZE == 0:
        page_ids = tl.load(table_row_ptr + clamp_keys(tile_start, first, last, const) // PAGE_SIZE)
    elif TILE_SIZE % PAGE_SIZE == 0:
        pages = tile_start // PAGE_SIZE + offsets // PAGE_SIZE
        pages = clamp_keys(pages, first // PAGE_SIZE, last // PAGE_SIZE, const)
        page_ids = tl.load(table_row_ptr + pages)
    else:
        keys = clamp_keys(tile_start + offsets, first, last, const)
        page_ids = tl.load(table_row_ptr + keys // PAGE_SIZE)
    return page_ids


@triton.jit
def clamp_keys(keys, first, last, const: tl.constexpr):
    """Keys or pages clamped to ``first .. last``; without a window ``first`` is 0."""
    if const.windowed:
        keys = tl.maximum(keys, first)
    return tl.minimum(keys, last)


@triton.jit
def tile_pointers(head_ptr, page_ids, tile_start, stride_page, stride_slot, const: tl.constexpr):
    """Pointers [tile_size, head_padded] to a tile of one KV head; to pairs of a paired cache half as many.

    ``stride_page`` is int64, because a cache may exceed 2^31 elements. Offsets inside a page are int32.
    """
    TILE_SIZE: tl.constexpr = const.tile_size
    PAGE_SIZE: tl.constexpr = const.page_size
    NUMBERS: tl.constexpr = 2 if head_ptr.dtype.element_ty.is_uint16() else 1  # of an element
    keys = tl.arange(0, TILE_SIZE)
    columns = tl.arange(0, const.head_padded // NUMBERS)
    if PAGE_SIZE % TILE_SIZE == 0:
        tile_ptr = head_ptr + page_ids.to(tl.int64) * stride_page + (tile_start % PAGE_SIZE) * stride_slot
        pointers = tile_ptr + (keys[:, None] * stride_slot + columns[None, :])
    else:
        slots = keys % PAGE_SIZE if TILE_SIZE % PAGE_SIZE == 0 else (tile_start + keys) % PAGE_SIZE
        page_offsets = page_ids.to(tl.int64) * stride_page
        pointers = head_ptr + page_offsets[:, None] + (slots[:, None] * stride_slot + columns[None, :])
    return pointers


@triton.jit
def load_tile(pointers, row_valid, dtype: tl.constexpr, const: tl.constexpr):
    """Load a tile of keys or values as ``dtype``; rows that are not valid are zero.

    ``row_valid`` is None where every row is valid. Then the load has no mask if the head size is a power of
    two. The result of a paired cache is two tiles: even and odd columns.
    """
    NUMBERS: tl.constexpr = 2 if pointers.dtype.element_ty.is_uint16() else 1  # of an element
    cache_modifier: tl.constexpr = ".cg" if const.bypass_l1 else ""
    if row_valid is not None:
        mask = row_mask(row_valid, const, NUMBERS)
        tile = tl.load(pointers, mask=mask, other=0.0, cache_modifier=cache_modifier)
    elif const.head_size == const.head_padded:
        tile = tl.load(pointers, cache_modifier=cache_modifier)
    else:
        mask = (tl.arange(0, const.head_padded // NUMBERS) < const.head_size // NUMBERS)[None, :]
        tile = tl.load(pointers, mask=mask, other=0.0, cache_modifier=cache_modifier)
    if NUMBERS == 2:
        return unpack_pairs(tile, const)
    else:
        return decode_e4m3(tile, dtype) if tile.dtype == tl.uint8 else tile.to(dtype)


@triton.jit
def unpack_pairs(tile, const: tl.constexpr):
    """Convert pairs of fp8 e4m3 numbers (uint16) to two tiles of fp16: the first numbers and the second.

    Pairs let every GPU transpose values with its 16-bit instructions, on their way from shared memory. The
    assembly takes two pairs, (a, b) and (c, d), and makes (a, c) and (b, d).
    """
    if const.converts_e4m3:
        return tl.inline_asm_elementwise(
            """{
            .reg .b32 sorted;
            .reg .b16 first, second;
            prmt.b32 sorted, $2, 0, 0x3120;
            mov.b32 {first, second}, sorted;
            cvt.rn.f16x2.e4m3x2 $0, first;
            cvt.rn.f16x2.e4m3x2 $1, second;
            }""",
            "=r,=r,r",
            [tile],
            dtype=(tl.float16, tl.float16),
            is_pure=True,
            pack=2,
        )
    else:
        return decode_e4m3(tile & 0xFF, tl.float16), decode_e4m3(tile >> 8, tl.float16)


@triton.jit
def decode_e4m3(bytes, dtype: tl.constexpr):
    """Convert fp8 e4m3 from its bits (uint8 or uint16), for GPUs on which Triton has no such conversion.

    Exponent and mantissa move to their places in fp16, where they mean a number 2^8 times smaller; this holds
    for subnormal numbers, too. The two NaNs become 480.
    """
    wide = bytes.to(tl.uint16)
    half = (((wide & 0x80) << 8) | ((wide & 0x7F) << 7)).to(tl.float16, bitcast=True)
    return (half * 256.0).to(dtype)


@triton.jit
def row_mask(row_valid, const: tl.constexpr, NUMBERS: tl.constexpr = 1):
    """Mask of a tile: [rows, head_padded // NUMBERS] where a head has padding, else [rows, 1]."""
    mask = row_valid[:, None]
    if const.head_size != const.head_padded:
        columns = tl.arange(0, const.head_padded // NUMBERS)
        mask = mask & (columns < const.head_size // NUMBERS)[None, :]
    return mask
