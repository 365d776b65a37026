"""The prompts' role of the Hopper kernel: two computing warpgroups; ``hopper_prompt_copies`` feeds them.

A Q-Block's 128 rows are consecutive query tokens of one sequence times the query heads that share a KV head;
a warpgroup computes 64 of them. It multiplies the values of a tile while it computes the softmax of the next
(FlashAttention-3, arXiv 2407.08608, section 3.2). The tiles run from the last, which holds the diagonal, to
the first; in fp16 the first comes second. Only a few tiles compute a row's maximum (``hopper_q_blocks``).

fp8 keys are multiplied as they are. A query is then a sum of two fp8 numbers, which is exact, or one.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from attn_kernels.kernels.hopper_device import (
    GROUP_ROWS,
    LOG2_E,
    UNIT,
    exp2,
    float_of,
    last_seen,
    mask_scores,
    padded,
    rescale_in_place,
    rescale_rows,
    round_weights,
    softmax_step,
    store_lse,
    sum_thread,
    tanh,
    weigh,
    zero_rows,
)
from attn_kernels.kernels.hopper_prompt_copies import receive_block
from attn_kernels.kernels.hopper_q_blocks import (
    comes_second,
    load_queries,
    note_large,
    split_queries,
    store_output,
    store_split,
    visited_tile,
)


@gluon.jit
def start_scores(q_smem, GROUP: gl.constexpr, k_smem, stage, const: gl.constexpr):
    TILE_SIZE: gl.constexpr = k_smem[0].shape[1]
    K: gl.constexpr = 32 if k_smem[0].dtype == gl.float8e4nv else 16
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE_SIZE, K])
    scores = gl.zeros([GROUP_ROWS, TILE_SIZE], gl.float32, layout)
    UNUSED: gl.constexpr = padded(const.head_size) - const.head_size
    for chunk in gl.static_range(len(q_smem)):
        k_tile = k_smem[chunk].index(stage).permute([1, 0])
        if q_smem[chunk].shape[0] == 4:  # of fp8 numbers
            high = q_smem[chunk].index(2 * GROUP)
            scores = warpgroup_mma(high, k_tile, scores, use_acc=chunk > 0, is_async=True)
            if const.query_terms == 2:
                scores = warpgroup_mma(q_smem[chunk].index(2 * GROUP + 1), k_tile, scores, is_async=True)
        else:
            q = q_smem[chunk].index(GROUP)
            if chunk == len(q_smem) - 1 and UNUSED > 0:
                scores = start_part(q, k_tile, scores, q.shape[1] - UNUSED, chunk > 0)
            else:
                scores = warpgroup_mma(q, k_tile, scores, use_acc=chunk > 0, is_async=True)
    return scores


@gluon.jit
def start_part(q, k_tile, scores, COLUMNS: gl.constexpr, USE_ACC: gl.constexpr):
    """Start the products of a chunk's first columns, because the others belong to another head."""
    for bit in gl.static_range(4):
        if COLUMNS & (128 >> bit):
            scores = warpgroup_mma(
                q.slice(COLUMNS - COLUMNS % (256 >> bit), 128 >> bit, 1),
                k_tile.slice(COLUMNS - COLUMNS % (256 >> bit), 128 >> bit, 0),
                scores,
                use_acc=USE_ACC or (256 >> bit) <= COLUMNS,
                is_async=True,
            )
    return scores


@gluon.jit
def add_bias(scores, scoring, factor, slopes, row_limit, start, PER_ROW: gl.constexpr):
    """Scores from products: with a soft cap before its factor; with ALiBi complete, in base 2.

    ``factor`` is of the products: a number, or one for each row.
    """
    if PER_ROW:
        factor = factor[:, None]
    if scoring.cap is not None:
        scores = tanh(scores * factor)
    if scoring.slopes_ptr is not None:
        keys = float_of(gl.arange(0, scores.shape[1], gl.SliceLayout(0, scores.type.layout)))
        if scoring.ahead is not None:
            distances = gl.abs(keys[None, :] + (start - row_limit).to(gl.float32)[:, None])
            bias = slopes[:, None] * -distances
        else:
            nearest = slopes * (start - row_limit).to(gl.float32)
            bias = slopes[:, None] * keys[None, :] + nearest[:, None]
        scores = scores * (scoring.cap if scoring.cap is not None else factor) + bias
    return scores


@gluon.jit
def consume_prompts(GROUP: gl.constexpr, rows, q_smem, ring, signals, const: gl.constexpr):
    """A computing warpgroup, which computes 64 rows of each Q-Block."""
    mail, repeats = signals
    block = receive_block(mail, 0)
    number = block.num_tiles * 0
    noted = block.num_tiles * 0
    base = block.num_tiles * 0  # stages used for earlier Q-Blocks
    while block.num_tiles > 0:
        noted, base = compute_q_block(GROUP, rows, (q_smem, ring), repeats, block, noted, base, const)
        number += 1
        block = receive_block(mail, number)


@gluon.jit
def compute_q_block(GROUP: gl.constexpr, rows, smems, repeats, block, noted, base, const: gl.constexpr):
    """Compute a PromptBlock; return the warpgroup's count of noted tickets, and the stages used so far."""
    q_ptr, _, strides, _, scoring, _ = rows
    stride_q_token, stride_q_head, _, _ = strides
    q_smem, ring = smems
    k_smem, v_smem, full, empty = ring
    first_limit, num_keys = block.first_limit, block.num_keys
    window = scoring.window
    HEADS: gl.constexpr = const.heads
    dtype: gl.constexpr = v_smem[0].dtype
    FP8: gl.constexpr = k_smem[0].dtype == gl.float8e4nv
    STAGES: gl.constexpr = full.shape[0]
    TILE_SIZE: gl.constexpr = k_smem[0].shape[1]
    CHUNKS: gl.constexpr = len(v_smem)
    score_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE_SIZE, 32 if FP8 else 16])
    first_acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, v_smem[0].shape[2], 16])
    weight_layout: gl.constexpr = gl.DotOperandLayout(0, first_acc_layout, 2)
    row_layout: gl.constexpr = gl.SliceLayout(1, score_layout)
    first_head = block.kv_head * HEADS
    first_row = block.first_token.to(gl.int64)
    num_rows = block.num_queries * HEADS
    q_block_ptr = q_ptr + (first_row * stride_q_token + first_head * stride_q_head) * UNIT
    q_strides = (stride_q_token, stride_q_head)
    if FP8:
        powers = split_queries(q_smem, GROUP, q_block_ptr, q_strides, num_rows, row_layout, const)
        product_factor = scoring.factor * powers
    else:
        load_queries(q_smem, GROUP, q_block_ptr, q_strides, num_rows, const)
        product_factor = scoring.factor
    # What the softmax multiplies scores with.
    PER_ROW: gl.constexpr = FP8 and scoring.slopes_ptr is None and scoring.cap is None
    if scoring.slopes_ptr is not None:
        factor: gl.constexpr = 1.0
    elif scoring.cap is not None:
        factor = scoring.cap
    else:
        factor = product_factor
    block_rows = GROUP * GROUP_ROWS + gl.arange(0, GROUP_ROWS, row_layout)
    row_limit = first_limit + block_rows // HEADS
    row_last = last_seen(row_limit, num_keys, scoring.ahead)
    first_last = last_seen(first_limit, num_keys, scoring.ahead)
    slopes = 0.0  # without ALiBi
    if scoring.slopes_ptr is not None:
        slopes = gl.load(scoring.slopes_ptr + first_head + block_rows % HEADS) * LOG2_E
    last = block.num_tiles - 1
    start = last * TILE_SIZE
    whole, cut, second, num_exact, num_tiles, hidden = find_tiles(block, first_last, window, TILE_SIZE, dtype)
    accs = [zero_products(smem.shape[2]) for smem in v_smem]
    # Finite, so that the weights of rows that see nothing of the first tile are 2**-inf = 0.
    row_max = gl.full([GROUP_ROWS], -1e30, gl.float32, row_layout)

    stage = base % STAGES
    mbarrier.wait(full.index(stage), (base // STAGES) & 1)
    scores = start_scores(q_smem, GROUP, k_smem, stage, const)
    scores = warpgroup_mma_wait(0, [scores])
    mbarrier.arrive(empty.index(stage), count=1)
    scores = add_bias(scores, scoring, product_factor, slopes, row_limit, start, FP8)
    scores = mask_scores(scores, row_limit, row_last, start, window)
    weights, rescale, row_max = softmax_step(scores, row_max, factor, PER_ROW)
    row_sum = sum_thread(weights)
    p = round_weights(weights, dtype, weight_layout)
    stage = (base + 1) % STAGES
    mbarrier.wait(full.index(stage), ((base + 1) // STAGES) & 1)
    first_valid = 0 * hidden
    stop_valid = num_keys - start
    if window is not None:
        # Where a window begins in the last box of keys, later boxes repeat the keys before the window.
        first_valid = gl.where(num_tiles == 1, hidden, 0)
        last_last = last_seen(first_limit + block.num_queries - 1, num_keys, scoring.ahead)
        stop_valid = gl.where(num_tiles == 1, last_last + 1 - start, stop_valid)
    if (first_valid > 0) | (stop_valid < TILE_SIZE):
        for chunk in gl.static_range(CHUNKS):
            zero_rows(v_smem[chunk], stage, first_valid, stop_valid)

    num_exact = gl.where(block.exact > 0, num_tiles, gl.minimum(num_exact, num_tiles))
    tiles = (base, last, second, whole, cut)
    of_rows = (scoring, product_factor, factor, slopes, row_limit, row_last)
    state = (p, accs, row_sum, row_max, rescale)
    for i in range(1, num_exact):
        state = next_tile(i, state, tiles, True, smems, of_rows, GROUP, const)
    p, accs, row_sum, row_max, rescale = state
    accs = [rescale_rows(acc, rescale) for acc in accs]
    state = (p, accs, row_sum, row_max, rescale)
    for i in range(num_exact, num_tiles):
        state = next_tile(i, state, tiles, False, smems, of_rows, GROUP, const)
    p, accs, row_sum, row_max, rescale = state

    stage = (base + num_tiles) % STAGES
    if window is not None:  # noqa: SIM102  # the compiler knows it, unlike ``hidden``
        if hidden > first_valid:
            for chunk in gl.static_range(CHUNKS):
                zero_rows(v_smem[chunk], stage, hidden, TILE_SIZE)
    products = ()
    for chunk in gl.static_range(CHUNKS):
        acc = warpgroup_mma(p, v_smem[chunk].index(stage), accs[chunk], is_async=True)
        products = products + (acc,)  # type: ignore[assignment]  # noqa: RUF005
    row_state = (row_sum, row_max)
    noted = finish_q_block(GROUP, rows, smems, repeats, block, products, row_state, stage, noted, const)
    return noted, base + num_tiles + 1


@gluon.jit
def find_tiles(block, first_last, window, TILE_SIZE: gl.constexpr, dtype: gl.constexpr):
    """What a PromptBlock visits, whose first query sees keys up to ``first_last``.

    Returns the first tile that not all rows see to its end, the first that all see from its beginning, the
    tile that comes second, how many compute a maximum, how many are visited, and keys hidden in the first.
    """
    first_limit, num_tiles = block.first_limit, block.num_tiles
    hidden = block.first_key
    whole = (first_last + 1) // TILE_SIZE
    cut = num_tiles * 0  # ``hidden`` keys come before the split, or before any window
    if window is not None:
        last_limit = first_limit + block.num_queries - 1
        cut = gl.maximum(last_limit - window + TILE_SIZE, 0) // TILE_SIZE
        hidden = gl.maximum(first_limit - window + 1, 0)
    second = comes_second(hidden, dtype)
    # The tiles that hold the rows' last keys, and in fp16 one more.
    ONE_MORE: gl.constexpr = 1 if dtype == gl.float16 else 0
    num_exact = gl.maximum(num_tiles - first_last // TILE_SIZE, 1) + ONE_MORE
    return whole, cut, second, num_exact, num_tiles - hidden // TILE_SIZE, hidden % TILE_SIZE


@gluon.jit
def finish_q_block(
    GROUP: gl.constexpr, rows, smems, repeats, block, products, row_state, stage, noted, const: gl.constexpr
):
    """Store a Q-Block's results, or a split's, and note its ticket if a row has outgrown its maximum."""
    _, out_ptr, strides, lse, scoring, partials = rows
    _, _, stride_out_token, stride_out_head = strides
    q_smem, ring = smems
    _, v_smem, _, empty = ring
    row_sum, row_max = row_state
    HEADS: gl.constexpr = const.heads
    row_layout: gl.constexpr = row_max.type.layout
    dtype: gl.constexpr = v_smem[0].dtype
    first_head = block.kv_head * HEADS
    first_row = block.first_token.to(gl.int64)
    num_rows = block.num_queries * HEADS
    block_rows = GROUP * GROUP_ROWS + gl.arange(0, GROUP_ROWS, row_layout)
    total = gl.sum(row_sum, 1)
    if block.exact == 0:
        noted = note_large(repeats, GROUP, noted, block.ticket, row_sum, dtype)
    row_sums = total
    sinks = None
    if scoring.sinks_ptr is not None:
        sinks = gl.load(scoring.sinks_ptr + first_head + block_rows % HEADS).to(gl.float32) * LOG2_E
        total += gl.convert_layout(exp2(sinks - row_max), total.type.layout)
    row_factor = 1.0 / gl.where(total > 0.0, total, 1.0)  # a row that sees no key has no weights
    out_rows = gl.where(block.split < 0, num_rows, 0)  # without a branch, which would delay the output
    if lse[0] is not None:
        row_sums = gl.convert_layout(row_sums, row_layout)
        store_lse(lse, first_row, first_head, block_rows, out_rows, row_max, row_sums, sinks, HEADS)
    if scoring.v_scale is not None:
        row_factor *= scoring.v_scale
    accs = wait_products(products)
    mbarrier.arrive(empty.index(stage), count=1)
    out_block_ptr = out_ptr + (first_row * stride_out_token + first_head * stride_out_head) * UNIT
    out_strides = (stride_out_token, stride_out_head)
    store_output(q_smem, GROUP, out_block_ptr, out_strides, out_rows, accs, row_factor, const)
    if partials is not None:  # noqa: SIM102  # the compiler knows it, unlike ``split``
        if block.split >= 0:
            at = (block.first_token, first_head, num_rows, block.split)
            sums = gl.convert_layout(row_sums, row_layout)
            store_split(partials, at, GROUP, accs, row_max, sums, scoring.v_scale, const)
    return noted


@gluon.jit
def next_tile(i, state, tiles, EXACT: gl.constexpr, smems, of_rows, GROUP: gl.constexpr, const: gl.constexpr):
    """Compute the weights of visit ``i`` to a tile, while the values of the visit before are multiplied.

    EXACT: whether the maximum may grow.
    """
    p, accs, row_sum, row_max, rescale = state
    q_smem, ring = smems
    k_smem, v_smem, full, empty = ring
    base, last, second, whole, cut = tiles
    scoring, product_factor, factor, slopes, row_limit, row_last = of_rows
    STAGES: gl.constexpr = full.shape[0]
    CHUNKS: gl.constexpr = len(v_smem)
    FP8: gl.constexpr = k_smem[0].dtype == gl.float8e4nv
    TILE_SIZE: gl.constexpr = k_smem[0].shape[1]
    weight_layout: gl.constexpr = p.type.layout
    PER_ROW: gl.constexpr = FP8 and scoring.slopes_ptr is None and scoring.cap is None
    tile = visited_tile(i, last, second)
    start = tile * TILE_SIZE
    index = base + i
    stage = index % STAGES
    scores = start_scores(q_smem, GROUP, k_smem, stage, const)
    products = ()
    for chunk in gl.static_range(CHUNKS):
        acc = rescale_in_place(accs[chunk], rescale) if EXACT else accs[chunk]
        acc = warpgroup_mma(p, v_smem[chunk].index(stage), acc, is_async=True)
        products = products + (acc,)  # type: ignore[assignment]  # noqa: RUF005
    scores = warpgroup_mma_wait(CHUNKS, [scores])
    scores = add_bias(scores, scoring, product_factor, slopes, row_limit, start, FP8)
    if EXACT or scoring.window is not None:  # noqa: SIM102  # the compiler knows it
        if (tile >= whole) | (tile < cut):
            scores = mask_scores(scores, row_limit, row_last, start, scoring.window)
    if EXACT:
        weights, rescale, row_max = softmax_step(scores, row_max, factor, PER_ROW)
        row_sum = rescale_rows(row_sum, rescale) + sum_thread(weights)
    else:
        weights = weigh(scores, row_max, factor, PER_ROW)
        row_sum += sum_thread(weights)
    next_p = round_weights(weights, v_smem[0].dtype, weight_layout)
    # Its branch keeps the assembler from hoisting the next wait over the softmax.
    mbarrier.wait(full.index((index + 1) % STAGES), ((index + 1) // STAGES) & 1)
    accs = wait_products(products)
    mbarrier.arrive(empty.index(stage), count=1)
    return next_p, accs, row_sum, row_max, rescale


@gluon.jit
def zero_products(WIDTH: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    return gl.zeros([GROUP_ROWS, WIDTH], gl.float32, layout)


@gluon.jit
def wait_products(products):
    accs = ()
    for chunk in gl.static_range(len(products)):
        acc = warpgroup_mma_wait(len(products) - 1 - chunk, [products[chunk]])
        accs = accs + (acc,)  # type: ignore[assignment]  # noqa: RUF005
    return accs
