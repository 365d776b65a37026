"""Device functions that both roles of the Hopper kernel call: messages, TMA copies and softmax steps."""

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

UNIT = gl.constexpr(8)  # two-byte elements in a 16-byte access: the unit of query and output strides
COLUMNS = gl.constexpr(64)  # two-byte elements in a row of 128 bytes, the widest swizzle
GROUP_ROWS = gl.constexpr(64)  # rows of a warpgroup: one wgmma
MESSAGES = gl.constexpr(2)  # on their way from a copying warp to computing warpgroups
# Triton renamed these after 3.6.
thread_barrier = getattr(gl, "barrier", None) or gl.thread_barrier
tma_load = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
OLD_REINTERPRET = gl.constexpr(hasattr(gl.shared_memory_descriptor, "_reinterpret"))


class Scoring(NamedTuple):
    """What turns products into scores and sums into outputs; None stands for an option that is not there.

    A score in base 2 is ``product * factor``; with a soft cap it is ``cap * tanh(product * factor)``.
    """

    factor: Any  # with the keys' scale
    cap: Any
    window: Any  # keys that a query sees
    slopes_ptr: Any
    sinks_ptr: Any
    v_scale: Any


class Caches(NamedTuple):
    """Both caches as descriptors, and what finds a page in them.

    ``k_desc`` and ``v_desc`` copy boxes of the columns of a head in whole units of COLUMNS, and ``k_tail_desc``
    and ``v_tail_desc`` boxes of the columns that remain; None where none remain.
    """

    k_desc: Any
    v_desc: Any
    k_tail_desc: Any
    v_tail_desc: Any
    k_steps: Any  # rows a page, rows a head, columns a head
    v_steps: Any
    table_ptr: Any
    stride_table: Any


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    """Allocate COUNT barriers, each of so many arrivals."""
    smem = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(smem.index(i), count=ARRIVALS)
    return smem


@gluon.jit
def mailbox(FIELDS: gl.constexpr, RECEIVERS: gl.constexpr):
    """Allocate room for MESSAGES messages of int32 fields, which so many warpgroups receive."""
    layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    smem = gl.allocate_shared_memory(gl.int32, [MESSAGES * FIELDS, 1], layout)
    return smem, barriers(MESSAGES, 1), barriers(MESSAGES, RECEIVERS)


@gluon.jit
def send(mail, number, fields):
    """Send message number ``number`` from a copying warp."""
    smem, full, empty = mail
    FIELDS: gl.constexpr = len(fields)
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [1], [0])
    slot = number % MESSAGES
    mbarrier.wait(empty.index(slot), (number // MESSAGES) & 1 ^ 1)
    for i in gl.static_range(FIELDS):
        smem.index(slot * FIELDS + i).store(gl.full([1], fields[i], gl.int32, layout))
    mbarrier.arrive(full.index(slot), count=1)


@gluon.jit
def receive(mail, number):
    """Return the fields of message number ``number`` in a warpgroup."""
    smem, full, empty = mail
    FIELDS: gl.constexpr = smem.shape[0] // MESSAGES
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    slot = number % MESSAGES
    mbarrier.wait(full.index(slot), (number // MESSAGES) & 1)
    fields = ()
    for i in gl.static_range(FIELDS):
        fields = fields + (gl.max(smem.index(slot * FIELDS + i).load(layout), 0),)  # type: ignore[assignment]  # noqa: RUF005
    mbarrier.arrive(empty.index(slot), count=1)
    return fields


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
