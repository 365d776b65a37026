"""The inner loop of every variant: online softmax of a query tile over a range of keys.

Scores and the softmax state are float32 and in base 2. The state has three parts: ``acc`` [block_m,
head_padded], the weighted sum of values; ``row_max`` [block_m], the largest score; ``row_sum`` [block_m], the
sum of weights. Of a paired cache, ``acc`` is two tensors: even and odd columns.
"""

import triton
import triton.language as tl

from attn_kernels.kernels.pages import load_page_ids, load_tile, tile_pointers


@triton.jit
def attend_keys(acc, row_max, row_sum, queries, keys, scoring, start, stop, const: tl.constexpr):
    """Return the softmax state after the keys ``start .. stop - 1``; start is a multiple of the tile size.

    Tiles whose keys every row sees run without masks. Two kinds of tiles are masked: those at the window's
    left edge, and those that hold the diagonal or the last key.
    """
    TILE_SIZE: tl.constexpr = const.tile_size
    full = start
    if const.windowed:
        left = tl.cdiv(tl.maximum(queries.last_position - scoring.window + 1, 0), TILE_SIZE) * TILE_SIZE
        full = tl.minimum(tl.maximum(left, start), tl.cdiv(stop, TILE_SIZE) * TILE_SIZE)
        acc, row_max, row_sum = attend_tiles(
            acc, row_max, row_sum, queries, keys, scoring, start, tl.minimum(full, stop), True, const
        )
    end = tl.minimum(queries.first_position + 1, stop) // TILE_SIZE * TILE_SIZE
    acc, row_max, row_sum = attend_tiles(
        acc, row_max, row_sum, queries, keys, scoring, full, end, False, const
    )
    acc, row_max, row_sum = attend_tiles(
        acc, row_max, row_sum, queries, keys, scoring, tl.maximum(full, end), stop, True, const
    )
    return acc, row_max, row_sum


@triton.jit
def attend_tiles(
    acc, row_max, row_sum, queries, keys, scoring, start, stop, MASKED: tl.constexpr, const: tl.constexpr
):
    """Return the softmax state after whole tiles. Page ids are loaded one tile ahead of keys and values."""
    TILE_SIZE: tl.constexpr = const.tile_size
    # The masked loops are short: more stages would only cost code.
    NUM_STAGES: tl.constexpr = min(const.num_stages, 2) if MASKED else const.num_stages
    ELEMENT: tl.constexpr = keys.k_ptr.dtype.element_ty
    offsets = tl.arange(0, TILE_SIZE)
    page_ids = load_page_ids(keys.table_ptr, start, keys.first, keys.last, const)
    for tile in tl.range(start, stop, TILE_SIZE, num_stages=NUM_STAGES):
        k_ptrs = tile_pointers(keys.k_ptr, page_ids, tile, keys.k_page, keys.k_slot, const)
        v_ptrs = tile_pointers(keys.v_ptr, page_ids, tile, keys.v_page, keys.v_slot, const)
        page_ids = load_page_ids(keys.table_ptr, tile + TILE_SIZE, keys.first, keys.last, const)
        k = load_tile(k_ptrs, None, queries.q.dtype, const)
        if MASKED:
            # A zero weight does not hide a NaN beyond the keys, so values are zero there.
            v_valid = offsets <= keys.last - tile
            if const.windowed:
                v_valid = v_valid & (offsets >= keys.first - tile)
            v = load_tile(v_ptrs, v_valid, queries.q.dtype, const)
        else:
            v = load_tile(v_ptrs, None, queries.q.dtype, const)
        scores = compute_scores(queries, k, tile, scoring, ELEMENT, const)
        if MASKED:
            limits = tl.minimum(queries.positions, keys.last) - tile
            visible = offsets[None, :] <= limits[:, None]
            if const.windowed:
                visible = visible & (offsets[None, :] > (queries.positions - tile - scoring.window)[:, None])
            scores = tl.where(visible, scores, float("-inf"))
        factor = 1.0 if const.softcapped or const.alibi else scoring.factor
        acc, row_max, row_sum = update_softmax(scores, v, acc, row_max, row_sum, factor, ELEMENT, const)
    return acc, row_max, row_sum


@triton.jit
def compute_scores(queries, k, tile, scoring, ELEMENT: tl.constexpr, const: tl.constexpr):
    """Scores [block_m, tile_size] with a soft cap or ALiBi; else the products of queries and keys."""
    if ELEMENT.is_uint16():
        scores = tl.dot(queries.q, tl.trans(k[0]))
        scores = tl.dot(queries.odd, tl.trans(k[1]), scores)
    elif const.block_m == 1:
        scores = tl.sum(queries.q.to(tl.float32) * k.to(tl.float32), 1)[None, :]
    else:
        scores = tl.dot(queries.q, tl.trans(k))
    if const.block_m > 1 and (ELEMENT.is_uint16() or ELEMENT.primitive_bitwidth == 8):
        scores *= queries.powers[:, None]
    if const.softcapped:
        # tanh(x / 2) = 1 - 2 / (1 + e^x), which neither overflows nor needs a library.
        scores = scoring.cap * (1.0 - 2.0 / (1.0 + tl.exp2(scores * scoring.factor)))
    elif const.alibi:
        scores = scores * scoring.factor
    if const.alibi:
        distances = tl.arange(0, const.tile_size)[None, :] - (queries.positions - tile)[:, None]
        scores += queries.slopes[:, None] * distances.to(tl.float32)
    return scores


@triton.jit
def update_softmax(scores, v, acc, row_max, row_sum, factor, ELEMENT: tl.constexpr, const: tl.constexpr):
    """Return the softmax state after one more tile.

    ``factor`` (softmax scale times log2(e)) is folded into the exponent, so that scaling costs one fused
    multiply-add an element. ``row_max`` is scaled by it already.
    """
    new_max = tl.maximum(row_max, tl.max(scores, 1) * factor)
    weights = tl.exp2(scores * factor - new_max[:, None])
    rescale = tl.exp2(row_max - new_max)
    row_sum = row_sum * rescale + tl.sum(weights, 1)
    if ELEMENT.is_uint16():
        weights = weights.to(tl.float16)
        even = tl.dot(weights, v[0], acc[0] * rescale[:, None])
        odd = tl.dot(weights, v[1], acc[1] * rescale[:, None])
        acc = (even, odd)
    elif const.block_m == 1:
        TILE_SIZE: tl.constexpr = const.tile_size
        acc = (
            acc * rescale[:, None]
            + tl.sum(tl.reshape(weights, [TILE_SIZE, 1]) * v.to(tl.float32), 0)[None, :]
        )
    else:
        acc = tl.dot(weights.to(v.dtype), v, acc * rescale[:, None])
    return acc, new_max, row_sum
