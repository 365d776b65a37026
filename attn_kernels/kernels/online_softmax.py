"""The inner loop of every variant: online softmax of a query tile over keys and values in pages.

Scores and the softmax state are float32 and in base 2. The state has three parts: ``acc`` [block_m,
columns], the weighted sum of values; ``row_max`` [block_m], the largest score; ``row_sum`` [block_m], the
sum of weights. Of a paired cache, ``acc`` is two tensors: even and odd columns.
"""

import triton
import triton.language as tl

from attn_kernels.kernels.compile_params import SequenceKeys


@triton.jit
def sequence_keys(cache, seq, kv_head, first_column, first, last, const: tl.constexpr):
    NUMBERS: tl.constexpr = 2 if const.paired else 1  # of an element
    unit: tl.constexpr = const.cache_unit // NUMBERS
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
    table_ptr = cache.table_ptr + seq.to(tl.int64) * cache.stride_table
    k_ptr += kv_head * stride_k_head * unit
    v_ptr += kv_head * stride_v_head * unit + first_column // NUMBERS
    strides = (k_page, k_slot, v_page, v_slot)
    return SequenceKeys(table_ptr, k_ptr, v_ptr, *strides, const.head_size - first_column, first, last)


@triton.jit
def load_page_ids(table_row_ptr, tile_start, first, last, const: tl.constexpr):
    """Page ids of a tile's keys: a scalar where a page holds whole tiles, else [tile_size].

    A key outside ``first .. last`` gets the page of the nearest key inside, because the sequence does not
    own the table's other entries.
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
def tile_pointers(
    head_ptr, page_ids, tile_start, stride_page, stride_slot, COLUMNS: tl.constexpr, const: tl.constexpr
):
    """Pointers [tile_size, COLUMNS] to a tile of one KV head; to pairs of a paired cache half as many.

    ``stride_page`` is int64, because a cache may exceed 2^31 elements. Offsets inside a page are int32.
    """
    TILE_SIZE: tl.constexpr = const.tile_size
    PAGE_SIZE: tl.constexpr = const.page_size
    NUMBERS: tl.constexpr = 2 if head_ptr.dtype.element_ty.is_uint16() else 1  # of an element
    keys = tl.arange(0, TILE_SIZE)
    columns = tl.arange(0, COLUMNS // NUMBERS)
    if PAGE_SIZE % TILE_SIZE == 0:
        tile_ptr = head_ptr + page_ids.to(tl.int64) * stride_page + (tile_start % PAGE_SIZE) * stride_slot
        pointers = tile_ptr + (keys[:, None] * stride_slot + columns[None, :])
    else:
        slots = keys % PAGE_SIZE if TILE_SIZE % PAGE_SIZE == 0 else (tile_start + keys) % PAGE_SIZE
        page_offsets = page_ids.to(tl.int64) * stride_page
        pointers = head_ptr + page_offsets[:, None] + (slots[:, None] * stride_slot + columns[None, :])
    return pointers


@triton.jit
def load_tile(pointers, row_valid, size, dtype: tl.constexpr, const: tl.constexpr):
    """Load a tile of keys or values of ``size`` elements as ``dtype``; rows that are not valid are zero.

    ``row_valid`` is None where all are. The result of a paired cache is two tiles: even and odd columns.
    """
    NUMBERS: tl.constexpr = 2 if pointers.dtype.element_ty.is_uint16() else 1  # of an element
    cache_modifier: tl.constexpr = ".cg" if const.bypass_l1 else ""
    columns = tl.arange(0, pointers.shape[1])
    if row_valid is not None:
        mask = row_mask(row_valid, size // NUMBERS, columns, const)
        tile = tl.load(pointers, mask=mask, other=0.0, cache_modifier=cache_modifier)
    elif const.head_size == const.head_padded:
        tile = tl.load(pointers, cache_modifier=cache_modifier)
    else:
        mask = (columns < size // NUMBERS)[None, :]
        tile = tl.load(pointers, mask=mask, other=0.0, cache_modifier=cache_modifier)
    if NUMBERS == 2:
        return unpack_pairs(tile, const)
    else:
        return decode_e4m3(tile, dtype) if tile.dtype == tl.uint8 else tile.to(dtype)


@triton.jit
def unpack_pairs(tile, const: tl.constexpr):
    """Convert pairs of fp8 e4m3 numbers (uint16) to two tiles of fp16: the first numbers and the second.

    The assembly takes two pairs, (a, b) and (c, d), and makes (a, c) and (b, d).
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
def row_mask(row_valid, size, columns, const: tl.constexpr):
    """Mask of a tile: [rows, columns], those below ``size``, where a head has padding, else [rows, 1]."""
    mask = row_valid[:, None]
    if const.head_size != const.head_padded:
        mask = mask & (columns < size)[None, :]
    return mask


@triton.jit
def attend_keys(state, queries, keys, scoring, start, stop, const: tl.constexpr):
    """Return the softmax state after the keys ``start .. stop - 1``; start is a multiple of the tile size.

    Tiles whose keys every row sees run without masks. Two kinds of tiles are masked: those at the window's
    left edge, and those that hold the diagonal or the last key.
    """
    TILE_SIZE: tl.constexpr = const.tile_size
    full = start
    if const.windowed:
        left = tl.cdiv(tl.maximum(queries.last_position - scoring.window + 1, 0), TILE_SIZE) * TILE_SIZE
        full = tl.minimum(tl.maximum(left, start), tl.cdiv(stop, TILE_SIZE) * TILE_SIZE)
        state = attend_tiles(state, queries, keys, scoring, start, tl.minimum(full, stop), True, const)
    end = tl.minimum(queries.shared_last + 1, stop) // TILE_SIZE * TILE_SIZE
    state = attend_tiles(state, queries, keys, scoring, full, end, False, const)
    return attend_tiles(state, queries, keys, scoring, tl.maximum(full, end), stop, True, const)


@triton.jit
def attend_tiles(state, queries, keys, scoring, start, stop, MASKED: tl.constexpr, const: tl.constexpr):
    """Return the softmax state after whole tiles. Page ids are loaded one tile ahead of keys and values."""
    TILE_SIZE: tl.constexpr = const.tile_size
    # The masked loops are short: more stages would only cost code.
    NUM_STAGES: tl.constexpr = min(const.num_stages, 2) if MASKED else const.num_stages
    ELEMENT: tl.constexpr = keys.k_ptr.dtype.element_ty
    offsets = tl.arange(0, TILE_SIZE)
    page_ids = load_page_ids(keys.table_ptr, start, keys.first, keys.last, const)
    for tile in tl.range(start, stop, TILE_SIZE, num_stages=NUM_STAGES):
        k_ptrs = tile_pointers(keys.k_ptr, page_ids, tile, keys.k_page, keys.k_slot, const.head_padded, const)
        v_ptrs = tile_pointers(keys.v_ptr, page_ids, tile, keys.v_page, keys.v_slot, const.columns, const)
        page_ids = load_page_ids(keys.table_ptr, tile + TILE_SIZE, keys.first, keys.last, const)
        k = load_tile(k_ptrs, None, const.head_size, queries.q.dtype, const)
        if MASKED:
            # A zero weight does not hide a NaN beyond the keys, so values are zero there.
            v_valid = offsets <= keys.last - tile
            if const.windowed:
                v_valid = v_valid & (offsets >= keys.first - tile)
        v = load_tile(v_ptrs, v_valid if MASKED else None, keys.v_size, queries.q.dtype, const)
        scores = compute_scores(queries, k, tile, scoring, ELEMENT, const)
        if MASKED:
            limits = tl.minimum(queries.last_keys, keys.last) - tile
            visible = offsets[None, :] <= limits[:, None]
            if const.windowed:
                visible = visible & (offsets[None, :] > (queries.positions - tile - scoring.window)[:, None])
            scores = tl.where(visible, scores, float("-inf"))
        factor = 1.0 if const.softcapped or const.alibi else scoring.factor
        state = update_softmax(scores, v, state, factor, ELEMENT)
    return state


@triton.jit
def compute_scores(queries, k, tile, scoring, ELEMENT: tl.constexpr, const: tl.constexpr):
    """Scores [block_m, tile_size] with a soft cap or ALiBi; else the products of queries and keys."""
    if ELEMENT.is_uint16():
        scores = tl.dot(queries.q, tl.trans(k[0]))
        scores = tl.dot(queries.odd, tl.trans(k[1]), scores)
    else:
        scores = tl.dot(queries.q, tl.trans(k))
    if ELEMENT.is_uint16() or ELEMENT.primitive_bitwidth == 8:
        scores *= queries.powers[:, None]
    if const.softcapped:
        # tanh(x / 2) = 1 - 2 / (1 + e^x), which neither overflows nor needs a library.
        scores = scoring.cap * (1.0 - 2.0 / (1.0 + tl.exp2(scores * scoring.factor)))
    elif const.alibi:
        scores = scores * scoring.factor
    if const.alibi:
        distances = tl.arange(0, const.tile_size)[None, :] - (queries.positions - tile)[:, None]
        if scoring.ahead is not None:
            distances = -tl.abs(distances)
        scores += queries.slopes[:, None] * distances.to(tl.float32)
    return scores


@triton.jit
def update_softmax(scores, v, state, factor, ELEMENT: tl.constexpr):
    """Return the softmax state after one more tile.

    ``factor`` (softmax scale times log2(e)) is folded into the exponent, so that scaling costs one fused
    multiply-add an element. ``row_max`` is scaled by it already.
    """
    acc, row_max, row_sum = state
    new_max = tl.maximum(row_max, tl.max(scores, 1) * factor)
    weights = tl.exp2(tl.fma(scores, factor, (new_max * -1.0)[:, None]))  # fused in every kernel
    rescale = tl.exp2(row_max - new_max)
    row_sum = row_sum * rescale + tl.sum(weights, 1)
    if ELEMENT.is_uint16():
        weights = weights.to(tl.float16)
        even = tl.dot(weights, v[0], acc[0] * rescale[:, None])
        odd = tl.dot(weights, v[1], acc[1] * rescale[:, None])
        acc = (even, odd)
    else:
        acc = tl.dot(weights.to(v.dtype), v, acc * rescale[:, None])
    return acc, new_max, row_sum
