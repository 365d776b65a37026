"""Device functions of the Hopper kernel: its copying warp, its computing warpgroups and their helpers."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

UNIT = gl.constexpr(8)  # two-byte elements in a 16-byte access: the unit of query and output strides
COLUMNS = gl.constexpr(64)  # two-byte elements in a row of 128 bytes, the widest swizzle
GROUP_ROWS = gl.constexpr(64)  # rows of a warpgroup: one wgmma
# Triton renamed these after 3.6.
thread_barrier = getattr(gl, "barrier", None) or gl.thread_barrier
tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
OLD_REINTERPRET = gl.constexpr(hasattr(gl.shared_memory_descriptor, "_reinterpret"))


@gluon.jit
def find_sequence(cu_seqlens_q_ptr, num_seqs, q_block, base, BLOCK_Q: gl.constexpr):
    """The sequence that owns Q-Block number ``q_block``, as ``pages.find_sequence`` counts."""
    low = 0
    high = num_seqs
    while high - low > 1:
        middle = (low + high) // 2
        first_block = (gl.load(cu_seqlens_q_ptr + middle) - base) // BLOCK_Q + middle
        low = gl.where(first_block <= q_block, middle, low)
        high = gl.where(first_block <= q_block, high, middle)
    return low


@gluon.jit
def as_boxes(smem, ROWS: gl.constexpr):
    """View tiles [stages, rows, columns] as boxes [ROWS, COLUMNS], in the order of their memory.

    A tile consists of parts of COLUMNS columns; each part is [rows, COLUMNS], in lines of 128 bytes.
    """
    NUM: gl.constexpr = smem.shape[0] * smem.shape[1] * smem.shape[2] // (ROWS * COLUMNS)
    shape: gl.constexpr = [NUM, ROWS, COLUMNS]
    if OLD_REINTERPRET:
        boxes = smem._reinterpret(smem.dtype, shape, smem.layout)
    else:
        boxes = smem.reinterpret(smem.dtype, shape, smem.layout)
    return boxes


@gluon.jit
def load_pages(
    table_row_ptr, tile, last_box, PAGE_SIZE: gl.constexpr, BOX: gl.constexpr, BOXES: gl.constexpr
):
    """Page ids of a tile's boxes. Boxes past the last key repeat its page, as later entries are undefined."""
    pages = ()
    for box in gl.static_range(BOXES):
        key = gl.minimum(tile * BOXES + box, last_box) * BOX
        pages = pages + (gl.load(table_row_ptr + key // PAGE_SIZE),)  # type: ignore[assignment]  # noqa: RUF005
    return pages


@gluon.jit
def copy_tile(
    desc,
    smem,
    stage,
    barrier,
    pages,
    tile,
    last_box,
    place,
    PAGE_SIZE: gl.constexpr,
    BOX: gl.constexpr,
):
    """Start the copies of a tile, in boxes [BOX, COLUMNS], part after part of its columns."""
    PARTS: gl.constexpr = smem.shape[2] // COLUMNS
    BOXES: gl.constexpr = smem.shape[1] // BOX
    page_rows, first_row, first_column = place
    boxes = as_boxes(smem, BOX)
    for box in gl.static_range(BOXES):
        row = pages[box] * page_rows + first_row
        if PAGE_SIZE != BOX:
            row += gl.minimum(tile * BOXES + box, last_box) * BOX % PAGE_SIZE
        for part in gl.static_range(PARTS):
            target = boxes.index((stage * PARTS + part) * BOXES + box)
            tma_load(desc, [row, first_column + part * COLUMNS], barrier, target)


@gluon.jit
def produce(
    k_desc, v_desc, k_place, v_place, ring, table_row_ptr, num_tiles, last_key, PAGE_SIZE: gl.constexpr
):
    """The copying warp. Stage i holds the keys of the i-th tile and the values of the tile before.

    The warpgroups multiply both at the same time, so one barrier announces them and one frees them.
    """
    k_smem, v_smem, full, empty = ring
    STAGES: gl.constexpr = k_smem.shape[0]
    BOX: gl.constexpr = k_desc.block_shape[0]
    BOXES: gl.constexpr = k_smem.shape[1] // BOX
    TILE_BYTES: gl.constexpr = k_smem.shape[1] * k_smem.shape[2] * 2
    last_box = last_key // BOX
    tile = num_tiles - 1
    barrier = full.index(0)
    pages = load_pages(table_row_ptr, tile, last_box, PAGE_SIZE, BOX, BOXES)
    mbarrier.expect(barrier, TILE_BYTES)
    copy_tile(k_desc, k_smem, 0, barrier, pages, tile, last_box, k_place, PAGE_SIZE, BOX)
    for i in range(1, num_tiles):
        stage = i % STAGES
        tile = num_tiles - 1 - i
        barrier = full.index(stage)
        next_pages = load_pages(table_row_ptr, tile, last_box, PAGE_SIZE, BOX, BOXES)
        mbarrier.wait(empty.index(stage), (i // STAGES) & 1 ^ 1)
        mbarrier.expect(barrier, 2 * TILE_BYTES)
        copy_tile(k_desc, k_smem, stage, barrier, next_pages, tile, last_box, k_place, PAGE_SIZE, BOX)
        copy_tile(v_desc, v_smem, stage, barrier, pages, tile + 1, last_box, v_place, PAGE_SIZE, BOX)
        pages = next_pages
    stage = num_tiles % STAGES
    barrier = full.index(stage)
    mbarrier.wait(empty.index(stage), (num_tiles // STAGES) & 1 ^ 1)
    mbarrier.expect(barrier, TILE_BYTES)
    copy_tile(v_desc, v_smem, stage, barrier, pages, 0, last_box, v_place, PAGE_SIZE, BOX)


@gluon.jit
def zero_rows(v_smem, stage, num_valid):
    """Zero the values of a tile from row ``num_valid`` on, because a zero weight does not hide a NaN.

    Both warpgroups write the same zeros, so neither has to wait for the other.
    """
    CHUNK: gl.constexpr = 16
    PARTS: gl.constexpr = v_smem.shape[2] // COLUMNS
    CHUNKS: gl.constexpr = v_smem.shape[1] // CHUNK
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    chunks = as_boxes(v_smem, CHUNK)
    rows = gl.arange(0, CHUNK, gl.SliceLayout(1, layout))
    for chunk in range(num_valid // CHUNK, CHUNKS):
        valid = chunk * CHUNK + rows < num_valid
        for part in gl.static_range(PARTS):
            target = chunks.index((stage * PARTS + part) * CHUNKS + chunk)
            target.store(gl.where(valid[:, None], target.load(layout), 0.0))
    fence_async_shared()
    thread_barrier()


@gluon.jit
def exp2(x):
    """2**x in one instruction; ``gl.exp2`` takes more, to keep subnormal numbers."""
    return gl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def mask_scores(scores, row_limit, start):
    """Scores of a tile that begins at key ``start``, -inf after each row's last key."""
    keys = gl.arange(0, scores.shape[1], gl.SliceLayout(0, scores.type.layout))
    return gl.where(keys[None, :] <= (row_limit - start)[:, None], scores, float("-inf"))


@gluon.jit
def softmax_step(scores, row_max, scale_log2):
    """Return a tile's weights, the factor of all earlier sums, and the new scaled maximum, in base 2."""
    new_max = gl.maximum(row_max, gl.max(scores, 1) * scale_log2)
    weights = exp2(scores * scale_log2 - new_max[:, None])
    return weights, exp2(row_max - new_max), new_max


@gluon.jit
def sum_thread(weights):
    """Row sums [rows, 4] of what each thread holds; the four threads of a row are added once, at the end."""
    pairs = gl.reshape(weights, [weights.shape[0], weights.shape[1] // 8, 4, 2])
    return gl.sum(gl.sum(pairs, 3), 1)


@gluon.jit
def round_weights(weights, dtype: gl.constexpr, layout: gl.constexpr):
    """Round weights to a left operand, in assembly: the compiler would move its own rounding past a wait."""
    if dtype == gl.bfloat16:
        p = gl.inline_asm_elementwise(
            "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [weights], dtype=gl.bfloat16, is_pure=True, pack=2
        )
    else:
        p = gl.inline_asm_elementwise(
            "cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [weights], dtype=gl.float16, is_pure=True, pack=2
        )
    return gl.convert_layout(p, layout)


@gluon.jit
def rescale_rows(x, factor):
    """Multiply each row by its factor."""
    return x * gl.convert_layout(factor, gl.SliceLayout(1, x.type.layout))[:, None]


@gluon.jit
def rescale_in_place(x, factor):
    """``rescale_rows`` in assembly, which the compiler does not move out of an asynchronous product."""
    factor = gl.convert_layout(factor, gl.SliceLayout(1, x.type.layout))[:, None]
    return gl.inline_asm_elementwise(
        "mul.f32 $0, $1, $2;", "=f,f,f", [x, factor], dtype=gl.float32, is_pure=False, pack=1
    )


@gluon.jit
def row_offsets(rows, stride_token, stride_head, HEADS: gl.constexpr):
    """Element offsets of rows; a row is a query token and a query head of the group, heads fastest."""
    return ((rows // HEADS) * stride_token + (rows % HEADS) * stride_head) * UNIT


@gluon.jit
def consume(
    GROUP: gl.constexpr, q_ptr, out_ptr, strides, q_smem, ring, block, scale_log2, HEADS: gl.constexpr
):
    """A computing warpgroup, which computes the attention of 64 rows."""
    stride_q_token, stride_q_head, stride_out_token, stride_out_head = strides
    num_rows, num_tiles, num_keys, first_limit = block
    k_smem, v_smem, full, empty = ring
    dtype: gl.constexpr = k_smem.dtype
    STAGES: gl.constexpr = k_smem.shape[0]
    TILE_SIZE: gl.constexpr = k_smem.shape[1]
    HEAD_SIZE: gl.constexpr = k_smem.shape[2]
    score_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, TILE_SIZE, 16])
    acc_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_SIZE, 16])
    weight_layout: gl.constexpr = gl.DotOperandLayout(0, acc_layout, 2)
    row_layout: gl.constexpr = gl.SliceLayout(1, score_layout)
    THREADS: gl.constexpr = HEAD_SIZE // UNIT
    io_layout: gl.constexpr = gl.BlockedLayout([1, UNIT], [32 // THREADS, THREADS], [4, 1], [1, 0])

    io_rows = GROUP * GROUP_ROWS + gl.arange(0, GROUP_ROWS, gl.SliceLayout(1, io_layout))
    columns = gl.arange(0, HEAD_SIZE, gl.SliceLayout(0, io_layout))[None, :]
    io_mask = (io_rows < num_rows)[:, None]
    q_offsets = row_offsets(io_rows, stride_q_token, stride_q_head, HEADS)[:, None]
    q_smem.store(gl.load(q_ptr + (q_offsets + columns), mask=io_mask, other=0.0))
    fence_async_shared()

    row_limit = first_limit + (GROUP * GROUP_ROWS + gl.arange(0, GROUP_ROWS, row_layout)) // HEADS
    start = (num_tiles - 1) * TILE_SIZE
    num_masked = num_tiles - (first_limit + 1) // TILE_SIZE
    acc = gl.zeros([GROUP_ROWS, HEAD_SIZE], gl.float32, acc_layout)
    no_scores = gl.zeros([GROUP_ROWS, TILE_SIZE], gl.float32, score_layout)
    # Finite, so that the weights of rows that see nothing of the first tile are 2**-inf = 0.
    row_max = gl.full([GROUP_ROWS], -1e30, gl.float32, row_layout)

    mbarrier.wait(full.index(0), 0)
    scores = warpgroup_mma(q_smem, k_smem.index(0).permute([1, 0]), no_scores, use_acc=False, is_async=True)
    scores = warpgroup_mma_wait(0, [scores])
    mbarrier.arrive(empty.index(0), count=1)
    weights, rescale, row_max = softmax_step(mask_scores(scores, row_limit, start), row_max, scale_log2)
    row_sum = sum_thread(weights)
    p = round_weights(weights, dtype, weight_layout)
    mbarrier.wait(full.index(1 % STAGES), 1 // STAGES)
    if start + TILE_SIZE > num_keys:
        zero_rows(v_smem, 1 % STAGES, num_keys - start)

    for i in range(1, num_tiles):
        stage = i % STAGES
        k_tile = k_smem.index(stage).permute([1, 0])
        scores = warpgroup_mma(q_smem, k_tile, no_scores, use_acc=False, is_async=True)
        acc = rescale_in_place(acc, rescale)
        acc = warpgroup_mma(p, v_smem.index(stage), acc, is_async=True)
        scores = warpgroup_mma_wait(1, [scores])
        if i < num_masked:
            scores = mask_scores(scores, row_limit, start - i * TILE_SIZE)
        weights, rescale, row_max = softmax_step(scores, row_max, scale_log2)
        row_sum = rescale_rows(row_sum, rescale) + sum_thread(weights)
        next_p = round_weights(weights, dtype, weight_layout)
        # Its branch keeps the assembler from hoisting the next wait over the softmax.
        mbarrier.wait(full.index((i + 1) % STAGES), ((i + 1) // STAGES) & 1)
        acc = warpgroup_mma_wait(0, [acc])
        mbarrier.arrive(empty.index(stage), count=1)
        p = next_p

    acc = warpgroup_mma(p, v_smem.index(num_tiles % STAGES), rescale_rows(acc, rescale), is_async=True)
    factor = 1.0 / gl.sum(row_sum, 1)
    acc = rescale_rows(warpgroup_mma_wait(0, [acc]), factor)
    q_smem.store(acc.to(dtype))
    out_offsets = row_offsets(io_rows, stride_out_token, stride_out_head, HEADS)[:, None]
    gl.store(out_ptr + (out_offsets + columns), q_smem.load(io_layout), mask=io_mask)
