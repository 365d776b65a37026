"""The decodes' role of the Hopper kernel: one computing warpgroup, which ``hopper_shares`` feeds.

The products are transposed: keys and values fill the 64 rows of a wgmma, and the few queries are its columns.
A head is computed in parts of COLUMNS columns. Of a narrower last part, only its columns are copied, and the
rest of its slot holds zeros. fp8 numbers are converted in pairs on their way from shared memory to registers:
a slot holds two parts, one of the even columns and one of the odd columns.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from attn_kernels.kernels.hopper_device import (
    COLUMNS,
    LOG2_E,
    UNIT,
    exp2,
    last_seen,
    powers_of,
    receive,
    row_offsets,
    store_lse,
    view_memory,
    zero_rows,
)
from attn_kernels.kernels.hopper_fragments import join_others
from attn_kernels.kernels.hopper_shares import DecodeBlock


@gluon.jit
def load_pairs(pairs):
    """Two left operands in fp16 from a left operand of pairs (uint16) of fp8 e4m3 numbers: (first, second).

    The assembly takes two pairs, (a, b) and (c, d), and makes (a, c) and (b, d).
    """
    return gl.inline_asm_elementwise(
        """{
        .reg .b32 sorted;
        .reg .b16 first, second;
        prmt.b32 sorted, $2, 0, 0x3120;
        mov.b32 {first, second}, sorted;
        cvt.rn.f16x2.e4m3x2 $0, first;
        cvt.rn.f16x2.e4m3x2 $1, second;
        }""",
        "=r,=r,r",
        [pairs],
        dtype=(gl.float16, gl.float16),
        is_pure=True,
        pack=2,
    )


@gluon.jit
def tail_view(smem, REST: gl.constexpr):
    """The ring as the tail descriptors fill its slots: in lines of as many columns as their boxes have."""
    LINE: gl.constexpr = REST & -REST
    tail_layout: gl.constexpr = gl.NVMMASharedLayout(2 * LINE, 16, rank=2)
    shape: gl.constexpr = smem.shape
    return view_memory(smem, smem.dtype, shape, tail_layout)


@gluon.jit
def start_scores(smems, n, const: gl.constexpr):
    q_smem, p_smem, ring = smems
    smem, full, _ = ring
    FP8: gl.constexpr = smem.dtype == gl.uint16
    SLOTS: gl.constexpr = smem.shape[0]
    PARTS: gl.constexpr = q_smem.shape[0]
    ROWS: gl.constexpr = q_smem.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    key_layout: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    REST: gl.constexpr = const.head_size % COLUMNS
    TILE_SIZE: gl.constexpr = p_smem.shape[1]
    scores = gl.zeros([TILE_SIZE, ROWS], gl.float32, layout)
    for part in gl.static_range(PARTS // 2 if FP8 else PARTS):
        slot = (n + part) % SLOTS
        mbarrier.wait(full.index(slot), ((n + part) // SLOTS) & 1)
        if FP8:
            even, odd = load_pairs(smem.index(slot).load(key_layout))
            queries = q_smem.index(2 * part).permute([1, 0])
            scores = warpgroup_mma(even, queries, scores, use_acc=part > 0, is_async=True)
            queries = q_smem.index(2 * part + 1).permute([1, 0])
            scores = warpgroup_mma(odd, queries, scores, is_async=True)
        else:
            queries = q_smem.index(part).permute([1, 0])
            if part < const.head_size // COLUMNS:
                scores = warpgroup_mma(smem.index(slot), queries, scores, use_acc=part > 0, is_async=True)
            else:
                keys = tail_view(smem, REST).index(slot).load(key_layout)
                scores = warpgroup_mma(keys, queries, scores, is_async=True)
    return scores


@gluon.jit
def bias_scores(scores, start, first_limit, scoring, slopes, powers, HEADS: gl.constexpr):
    """Scores from products: with a soft cap before its factor; with ALiBi complete, in base 2."""
    if powers is not None:
        scores = scores * powers[None, :]
    if scoring.cap is not None:
        # tanh(x) = 1 - 2 / (1 + e^2x); the instruction for tanh is less precise.
        scores = 1.0 - 2.0 / (1.0 + exp2(scores * (scoring.factor * (2.0 * LOG2_E))))
    if slopes is not None:
        layout: gl.constexpr = scores.type.layout
        keys = start + gl.arange(0, scores.shape[0], gl.SliceLayout(1, layout))
        limits = first_limit + gl.arange(0, scores.shape[1], gl.SliceLayout(0, layout)) // HEADS
        distances = (keys[:, None] - limits[None, :]).to(gl.float32)
        if scoring.ahead is not None:
            distances = -gl.abs(distances)
        bias = slopes[None, :] * distances
        factor = scoring.factor if scoring.cap is None else scoring.cap
        scores = scores * factor + bias
    return scores


@gluon.jit
def attend_share(smems, n, block, scoring, slopes, powers, const: gl.constexpr):
    """The softmax state of a DecodeBlock, and the slots used so far.

    The state is one tensor [COLUMNS, rows] for each part of the columns, the maxima [rows], and the sums
    [rows].
    """
    q_smem, p_smem, ring = smems
    smem, full, empty = ring
    window = scoring.window
    dtype: gl.constexpr = p_smem.dtype
    FP8: gl.constexpr = smem.dtype == gl.uint16
    SLOTS: gl.constexpr = smem.shape[0]
    TILE_SIZE: gl.constexpr = smem.shape[1]
    PARTS: gl.constexpr = q_smem.shape[0]
    SIDE: gl.constexpr = PARTS // 2 if FP8 else PARTS  # slots of a tile's keys
    REST: gl.constexpr = const.head_size % COLUMNS
    HEADS: gl.constexpr = const.heads
    ROWS: gl.constexpr = q_smem.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    row_layout: gl.constexpr = gl.SliceLayout(0, layout)
    value_layout: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    slots_shape: gl.constexpr = smem.shape
    slots_layout: gl.constexpr = smem.layout
    # What the softmax multiplies scores with.
    if slopes is not None:
        factor: gl.constexpr = 1.0
    elif scoring.cap is not None:
        factor = scoring.cap
    else:
        factor = scoring.factor
    accs = (gl.zeros([COLUMNS, ROWS], gl.float32, layout),) * PARTS
    sums = gl.zeros([TILE_SIZE, ROWS], gl.float32, layout)
    row_max = gl.full([ROWS], -1e30, gl.float32, row_layout)
    num_queries, first_limit, num_keys = block.num_queries, block.first_limit, block.num_keys
    for i in range(block.start, block.stop):
        scores = warpgroup_mma_wait(0, [start_scores(smems, n, const)])
        for part in gl.static_range(SIDE):
            mbarrier.arrive(empty.index((n + part) % SLOTS), count=1)
        n += SIDE
        scores = bias_scores(scores, i * TILE_SIZE, first_limit, scoring, slopes, powers, HEADS)
        masked = (i + 1) * TILE_SIZE > last_seen(first_limit, num_keys, scoring.ahead) + 1
        if window is not None:
            masked = masked | (i * TILE_SIZE <= first_limit + num_queries - 1 - window)
        if masked:
            keys = i * TILE_SIZE + gl.arange(0, TILE_SIZE, gl.SliceLayout(1, layout))
            limits = first_limit + gl.arange(0, ROWS, row_layout) // HEADS
            visible = keys[:, None] <= last_seen(limits, num_keys, scoring.ahead)[None, :]
            if window is not None:
                visible = visible & (keys[:, None] > (limits - window)[None, :])
            scores = gl.where(visible, scores, float("-inf"))
        new_max = gl.maximum(row_max, gl.max(scores, 0) * factor)
        weights = exp2(scores * factor - new_max[None, :])
        rescale = exp2(row_max - new_max)[None, :]
        row_max = new_max
        sums = sums * rescale + weights
        p_smem.permute([1, 0]).store(weights.to(dtype))
        fence_async_shared()
        p_tile = p_smem.permute([1, 0])
        products = ()
        for part in gl.static_range(SIDE):
            slot = (n + part) % SLOTS
            mbarrier.wait(full.index(slot), ((n + part) // SLOTS) & 1)
            if FP8:
                halves = view_memory(smem, gl.float16, slots_shape, slots_layout)
                hide_values(halves, slot, i, num_keys, first_limit, window)
                even, odd = load_pairs(smem.index(slot).permute([1, 0]).load(value_layout))
                product = warpgroup_mma(even, p_tile, accs[2 * part] * rescale, is_async=True)
                products = products + (product,)  # type: ignore[assignment]  # noqa: RUF005
                product = warpgroup_mma(odd, p_tile, accs[2 * part + 1] * rescale, is_async=True)
            elif part < const.head_size // COLUMNS:
                hide_values(smem, slot, i, num_keys, first_limit, window)
                values = smem.index(slot).permute([1, 0])
                product = warpgroup_mma(values, p_tile, accs[part] * rescale, is_async=True)
            else:
                tails = tail_view(smem, REST)
                hide_values(tails, slot, i, num_keys, first_limit, window)
                tail = tails.index(slot).permute([1, 0]).load(value_layout)
                product = warpgroup_mma(tail, p_tile, accs[part] * rescale, is_async=True)
            products = products + (product,)  # type: ignore[assignment]  # noqa: RUF005
        accs = ()
        for part in gl.static_range(PARTS):
            accs = accs + (warpgroup_mma_wait(PARTS - 1 - part, [products[part]]),)  # noqa: RUF005
        for part in gl.static_range(SIDE):
            mbarrier.arrive(empty.index((n + part) % SLOTS), count=1)
        n += SIDE
    return accs, row_max, gl.sum(sums, 0), n


@gluon.jit
def hide_values(smem, slot, tile, num_keys, first_limit, window):
    TILE_SIZE: gl.constexpr = smem.shape[1]
    start = tile * TILE_SIZE
    first = 0 * tile
    if window is not None:
        first = gl.maximum(first_limit - window + 1 - start, 0)
    if (first > 0) | (start + TILE_SIZE > num_keys):
        zero_rows(smem, slot, first, num_keys - start)


@gluon.jit
def first_column(part: gl.constexpr, FP8: gl.constexpr):
    """The first column of a part; the others follow it, of an fp8 cache at every second column."""
    return part // 2 * (2 * COLUMNS) + part % 2 if FP8 else part * COLUMNS


@gluon.jit
def store_queries(q_smem, q_ptrs, row_mask, FP8: gl.constexpr, HEAD_SIZE: gl.constexpr):
    """Copy the queries of a Q-Block to shared memory; return the powers of two by which rows were divided.

    They are divided for fp8 caches only, so that their numbers are below 2 in fp16. Else the result is None.
    """
    PARTS: gl.constexpr = q_smem.shape[0]
    layout: gl.constexpr = q_ptrs.type.layout
    powers = None
    if FP8:
        row_layout: gl.constexpr = gl.SliceLayout(1, layout)
        ROWS: gl.constexpr = q_smem.shape[1]
        largest = gl.full([ROWS], 1e-30, gl.float32, row_layout)
        queries = ()
        for part in gl.static_range(PARTS):
            loaded = gl.load(q_ptrs + first_column(part, FP8), mask=row_mask[:, None], other=0.0)
            queries = queries + (loaded.to(gl.float32),)  # type: ignore[assignment]  # noqa: RUF005
            largest = gl.maximum(largest, gl.max(gl.abs(queries[part]), 1))
        powers, inverse = powers_of(largest)
        for part in gl.static_range(PARTS):
            q_smem.index(part).store((queries[part] * inverse[:, None]).to(gl.float16))
    else:
        for part in gl.static_range(PARTS):
            mask = row_mask[:, None]
            if (part + 1) * COLUMNS > HEAD_SIZE:
                columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))[None, :]
                mask = mask & (columns < HEAD_SIZE % COLUMNS)
            q_smem.index(part).store(gl.load(q_ptrs + first_column(part, FP8), mask=mask, other=0.0))
    fence_async_shared()
    return powers


@gluon.jit
def consume_decodes(tensors, smems, mail, fragments, num_kv_heads, const: gl.constexpr):
    """The computing warpgroup, which computes this program's share of the decodes."""
    q_ptr, out_ptr, strides, lse, scoring, _ = tensors
    stride_q_token, stride_q_head, stride_out_token, stride_out_head = strides
    q_smem = smems[0]
    HEADS: gl.constexpr = const.heads
    HEAD_SIZE: gl.constexpr = const.head_size
    FP8: gl.constexpr = smems[2][0].dtype == gl.uint16
    dtype: gl.constexpr = out_ptr.dtype.element_ty
    PARTS: gl.constexpr = q_smem.shape[0]
    ROWS: gl.constexpr = q_smem.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    THREADS: gl.constexpr = COLUMNS // UNIT
    io_layout: gl.constexpr = gl.BlockedLayout([1, UNIT], [32 // THREADS, THREADS], [4, 1], [1, 0])
    io_rows = gl.arange(0, ROWS, gl.SliceLayout(1, io_layout))
    STEP: gl.constexpr = 2 if FP8 else 1  # between columns of a part
    io_columns = (gl.arange(0, COLUMNS, gl.SliceLayout(0, io_layout)) * STEP)[None, :]
    rows = gl.arange(0, ROWS, gl.SliceLayout(0, layout))
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(1, layout))
    places = (columns[:, None] * ROWS + rows[None, :], rows)
    kv_head = gl.program_id(0) % num_kv_heads
    q_ptr += kv_head * HEADS * stride_q_head * UNIT
    out_ptr += kv_head * HEADS * stride_out_head * UNIT
    slopes = None
    if scoring.slopes_ptr is not None:
        slopes = gl.load(scoring.slopes_ptr + kv_head * HEADS + rows % HEADS) * LOG2_E
    block = DecodeBlock(*receive(mail, 0))
    n = block.stop * 0
    number = block.stop * 0
    while block.stop > 0:
        num_rows = block.num_queries * HEADS
        q_offsets = row_offsets(io_rows, stride_q_token, stride_q_head, HEADS)[:, None] + io_columns
        q_ptrs = q_ptr + block.first_token.to(gl.int64) * stride_q_token * UNIT + q_offsets
        powers = store_queries(q_smem, q_ptrs, io_rows < num_rows, FP8, HEAD_SIZE)
        if FP8:
            powers = gl.convert_layout(powers, gl.SliceLayout(0, layout))
        accs, row_max, row_sum, n = attend_share(smems, n, block, scoring, slopes, powers, const)
        finished = (block.start == 0) & (block.stop == block.tiles)
        if (block.start > 0) | (block.stop < block.tiles):
            finished, accs, row_max, row_sum = join_others(
                fragments, (accs, row_max, row_sum), block.first_group, block.last_group, num_kv_heads, places
            )
        if finished:
            out_offsets = row_offsets(rows, stride_out_token, stride_out_head, HEADS)[None, :]
            out_token_ptr = out_ptr + block.first_token.to(gl.int64) * stride_out_token * UNIT
            out_ptrs = out_token_ptr + (out_offsets + (columns * STEP)[:, None])
            total = row_sum
            sinks = None
            if scoring.sinks_ptr is not None:
                sinks = gl.load(scoring.sinks_ptr + kv_head * HEADS + rows % HEADS).to(gl.float32) * LOG2_E
                total += exp2(sinks - row_max)
            total = gl.where(total == 0.0, 1.0, total)  # of rows that see no key
            if lse[0] is not None:
                first_head = kv_head * HEADS
                store_lse(lse, block.first_token, first_head, rows, num_rows, row_max, row_sum, sinks, HEADS)
            if scoring.v_scale is not None:
                total = total / scoring.v_scale
            for part in gl.static_range(PARTS):
                if (part + 1) * COLUMNS > HEAD_SIZE:
                    mask = (rows < num_rows)[None, :] & (columns < HEAD_SIZE % COLUMNS)[:, None]
                else:
                    mask = (rows < num_rows)[None, :] & (columns < COLUMNS)[:, None]
                values = (accs[part] / total[None, :]).to(dtype)
                gl.store(out_ptrs + first_column(part, FP8), values, mask=mask)
        number += 1
        block = DecodeBlock(*receive(mail, number))
