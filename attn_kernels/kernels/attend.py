"""The inner loop of every variant: online softmax of a query tile over a range of keys."""

import triton
import triton.language as tl

from attn_kernels.kernels.pages import load_page_ids, load_tile, tile_pointers


@triton.jit
def attend(acc, row_max, row_sum, rows, keys, scoring, start, stop, const: tl.constexpr):
    """Go over the keys ``start .. stop - 1``, where start is a multiple of the tile size.

    Tiles that every row sees whole run without masks: those between the window's ragged left edge and the
    diagonal, or the last key.
    """
    TILE_SIZE: tl.constexpr = const.tile_size
    full = start
    if const.windowed:
        left = tl.cdiv(tl.maximum(rows.last_position - scoring.window + 1, 0), TILE_SIZE) * TILE_SIZE
        full = tl.minimum(tl.maximum(left, start), tl.cdiv(stop, TILE_SIZE) * TILE_SIZE)
        acc, row_max, row_sum = attend_tiles(
            acc, row_max, row_sum, rows, keys, scoring, start, tl.minimum(full, stop), True, const
        )
    end = tl.minimum(rows.first_position + 1, stop) // TILE_SIZE * TILE_SIZE
    acc, row_max, row_sum = attend_tiles(acc, row_max, row_sum, rows, keys, scoring, full, end, False, const)
    acc, row_max, row_sum = attend_tiles(
        acc, row_max, row_sum, rows, keys, scoring, tl.maximum(full, end), stop, True, const
    )
    return acc, row_max, row_sum


@triton.jit
def attend_tiles(
    acc, row_max, row_sum, rows, keys, scoring, start, stop, MASKED: tl.constexpr, const: tl.constexpr
):
    """Go over whole tiles, with masks or without. Page ids are fetched one tile ahead of K and V."""
    TILE_SIZE: tl.constexpr = const.tile_size
    # The masked loops are short: more stages would only cost code.
    NUM_STAGES: tl.constexpr = min(const.num_stages, 2) if MASKED else const.num_stages
    offsets = tl.arange(0, TILE_SIZE)
    page_ids = load_page_ids(keys.table_ptr, start, keys.first, keys.last, const)
    for tile in tl.range(start, stop, TILE_SIZE, num_stages=NUM_STAGES):
        k_ptrs = tile_pointers(keys.table_ptr, keys.k_ptr, page_ids, tile, keys.k_page, keys.k_slot, const)
        v_ptrs = tile_pointers(keys.table_ptr, keys.v_ptr, page_ids, tile, keys.v_page, keys.v_slot, const)
        page_ids = load_page_ids(keys.table_ptr, tile + TILE_SIZE, keys.first, keys.last, const)
        k = load_tile(k_ptrs, None, rows.q.dtype, const)
        if MASKED:
            # A zero weight does not hide a NaN that lies outside the keys, so V is zero there.
            v_valid = offsets <= keys.last - tile
            if const.windowed:
                v_valid = v_valid & (offsets >= keys.first - tile)
            v = load_tile(v_ptrs, v_valid, rows.q.dtype, const)
        else:
            v = load_tile(v_ptrs, None, rows.q.dtype, const)
        scores = score(rows, k, tile, scoring, const)
        if MASKED:
            limits = tl.minimum(rows.positions, keys.last) - tile
            visible = offsets[None, :] <= limits[:, None]
            if const.windowed:
                visible = visible & (offsets[None, :] > (rows.positions - tile - scoring.window)[:, None])
            scores = tl.where(visible, scores, float("-inf"))
        factor = 1.0 if const.softcapped or const.alibi else scoring.factor
        acc, row_max, row_sum = accumulate(scores, v, acc, row_max, row_sum, factor, const)
    return acc, row_max, row_sum


@triton.jit
def score(rows, k, tile, scoring, const: tl.constexpr):
    """Products [block_m, tile_size] of queries and keys; with a soft cap or ALiBi, scores in base 2."""
    if const.block_m == 1:
        scores = tl.sum(rows.q.to(tl.float32) * k.to(tl.float32), 1)[None, :]
    else:
        scores = tl.dot(rows.q, tl.trans(k))
    if const.softcapped:
        # tanh(x / 2) = 1 - 2 / (1 + e^x), which neither overflows nor needs a library.
        scores = scoring.cap * (1.0 - 2.0 / (1.0 + tl.exp2(scores * scoring.factor)))
    elif const.alibi:
        scores = scores * scoring.factor
    if const.alibi:
        distances = tl.arange(0, const.tile_size)[None, :] - (rows.positions - tile)[:, None]
        scores += rows.slopes[:, None] * distances.to(tl.float32)
    return scores


@triton.jit
def accumulate(scores, v, acc, row_max, row_sum, factor, const: tl.constexpr):
    """One step of online softmax in base 2 and float32.

    ``row_max`` holds the largest score so far times ``factor`` (softmax scale times log2(e)), so that
    scaling costs one fused multiply-add an element.
    """
    new_max = tl.maximum(row_max, tl.max(scores, 1) * factor)
    weights = tl.exp2(scores * factor - new_max[:, None])
    rescale = tl.exp2(row_max - new_max)
    row_sum = row_sum * rescale + tl.sum(weights, 1)
    if const.block_m == 1:
        TILE_SIZE: tl.constexpr = const.tile_size
        acc = (
            acc * rescale[:, None]
            + tl.sum(tl.reshape(weights, [TILE_SIZE, 1]) * v.to(tl.float32), 0)[None, :]
        )
    else:
        acc = tl.dot(weights.to(v.dtype), v, acc * rescale[:, None])
    return acc, new_max, row_sum
