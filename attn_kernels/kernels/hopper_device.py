"""Device functions that both roles of the Hopper kernel call: messages, TMA copies and softmax steps."""

from typing import Any, NamedTuple

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from attn_kernels.kernels import arguments, hopper_limits

UNIT = gl.constexpr(hopper_limits.UNIT)
COLUMNS = gl.constexpr(hopper_limits.COLUMNS)
LOG2_E = gl.constexpr(arguments.LOG2_E)
GROUP_ROWS = gl.constexpr(64)  # rows of a warpgroup: one wgmma
MESSAGES = gl.constexpr(2)  # on their way from a copying warp to computing warpgroups
padded = triton.constexpr_function(hopper_limits.padded)
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
    window: Any  # keys that a query sees up to its own
    ahead: Any  # keys that it sees behind its own; causal attention without
    slopes_ptr: Any
    sinks_ptr: Any
    v_scale: Any


class Caches(NamedTuple):
    """Both caches as descriptors, and what finds a page in them."""

    k_desc: Any  # copies boxes of COLUMNS columns
    v_desc: Any
    k_tail_desc: Any  # copies a head's last columns, where its size is no multiple of COLUMNS
    v_tail_desc: Any
    k_steps: Any  # rows per page, rows per head, columns per head
    v_steps: Any
    table_ptr: Any
    stride_table: Any


@gluon.jit
def barriers(COUNT: gl.constexpr, ARRIVALS: gl.constexpr):
    smem = gl.allocate_shared_memory(gl.int64, [COUNT, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(COUNT):
        mbarrier.init(smem.index(i), count=ARRIVALS)
    return smem


@gluon.jit
def mailbox(FIELDS: gl.constexpr, RECEIVERS: gl.constexpr):
    """Allocate room for MESSAGES messages of int32 fields, which this many warpgroups receive."""
    layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    smem = gl.allocate_shared_memory(gl.int32, [MESSAGES * FIELDS, 1], layout)
    return smem, barriers(MESSAGES, 1), barriers(MESSAGES, RECEIVERS)


@gluon.jit
def send(mail, number, fields):
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
def allocate_heads(
    COUNT: gl.constexpr, ROWS: gl.constexpr, WIDE: gl.constexpr, dtype: gl.constexpr, const: gl.constexpr
):
    """Allocate COUNT tiles of ROWS heads: a buffer [COUNT, ROWS, columns] for each chunk of their columns.

    Chunks are powers of two, the largest first. They lie in lines of WIDE columns, and narrower
    ones in lines as wide as a tail descriptor's box.
    """
    HEAD_SIZE: gl.constexpr = padded(const.head_size)
    # One product of 256 columns needs more registers than a thread has when a launch of 512 begins.
    MOST: gl.constexpr = 128 if const.raw_stages else 256
    REST: gl.constexpr = HEAD_SIZE % WIDE
    TAIL: gl.constexpr = REST & -REST
    smems = ()
    for bit in gl.static_range(5):
        if HEAD_SIZE & (256 >> bit):
            for _ in gl.static_range(max(1, (256 >> bit) // MOST)):
                smem = allocate_chunk(
                    COUNT, ROWS, min(256 >> bit, MOST), WIDE if (256 >> bit) >= WIDE else TAIL, dtype
                )
                smems = smems + (smem,)  # type: ignore[assignment]  # noqa: RUF005
    return smems


@gluon.jit
def allocate_chunk(
    COUNT: gl.constexpr, ROWS: gl.constexpr, WIDTH: gl.constexpr, LINE: gl.constexpr, dtype: gl.constexpr
):
    BITS: gl.constexpr = dtype.primitive_bitwidth
    layout: gl.constexpr = gl.NVMMASharedLayout(LINE * BITS // 8, BITS, rank=2)
    return gl.allocate_shared_memory(dtype, [COUNT, ROWS, WIDTH], layout)


@gluon.jit
def as_boxes(smem, ROWS: gl.constexpr, LINE: gl.constexpr):
    """View tiles [stages, rows, columns] as boxes [ROWS, LINE], in the order of their memory.

    A tile consists of parts of LINE columns, as many as the swizzle is wide; each part is [rows, LINE].
    """
    NUM: gl.constexpr = smem.shape[0] * smem.shape[1] * smem.shape[2] // (ROWS * LINE)
    shape: gl.constexpr = [NUM, ROWS, LINE]
    layout: gl.constexpr = smem.layout
    return view_memory(smem, smem.dtype, shape, layout)


@gluon.jit
def view_memory(smem, dtype: gl.constexpr, shape: gl.constexpr, layout: gl.constexpr):
    if OLD_REINTERPRET:
        view = smem._reinterpret(dtype, shape, layout)
    else:
        view = smem.reinterpret(dtype, shape, layout)
    return view


@gluon.jit
def last_seen(limit, num_keys, ahead):
    """The last key that a query sees, or each of several; ``limit`` is its own, of this many."""
    if ahead is not None:
        limit = gl.minimum(limit + ahead, num_keys - 1)
    return limit


@gluon.jit
def clamp_box(box, visible):
    """The box, or the nearest of ``visible``: the first (None for 0) and the last that a query sees."""
    first_box, last_box = visible
    if first_box is not None:
        box = gl.maximum(box, first_box)
    return gl.minimum(box, last_box)


@gluon.jit
def load_pages(table_row_ptr, tile, visible, PAGE_SIZE: gl.constexpr, BOX: gl.constexpr, BOXES: gl.constexpr):
    """Page ids of a tile's boxes, clamped as the table's other entries are undefined."""
    pages = ()
    for box in gl.static_range(BOXES):
        key = clamp_box(tile * BOXES + box, visible) * BOX
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
    visible,
    place,
    PAGE_SIZE: gl.constexpr,
    WIDTH: gl.constexpr = None,
):
    """Start the copies of a tile, in boxes of the descriptor, part after part of its columns.

    ``WIDTH`` columns of the tile are copied, all by default.
    """
    BOX: gl.constexpr = desc.block_shape[0]
    LINE: gl.constexpr = desc.block_shape[1]
    PARTS: gl.constexpr = smem.shape[2] // LINE
    COPIED: gl.constexpr = PARTS if WIDTH is None else WIDTH // LINE
    BOXES: gl.constexpr = smem.shape[1] // BOX
    page_rows, first_row, first_column = place
    boxes = as_boxes(smem, BOX, LINE)
    for box in gl.static_range(BOXES):
        row = pages[box] * page_rows + first_row
        if PAGE_SIZE != BOX:
            row += clamp_box(tile * BOXES + box, visible) * BOX % PAGE_SIZE
        for part in gl.static_range(COPIED):
            target = boxes.index((stage * PARTS + part) * BOXES + box)
            tma_load(desc, [row, first_column + part * LINE], barrier, target)


@gluon.jit
def zero_rows(v_smem, stage, first, stop):
    """Zero the rows of values before ``first`` and from ``stop`` on: a zero weight does not hide a NaN.

    Both warpgroups of prompts write the same numbers. They must zero a tile once: a second pass of one could
    be undone by the first pass of the other, which writes back the rows that it keeps.
    """
    CHUNK: gl.constexpr = 16
    LINE: gl.constexpr = v_smem.layout.swizzle_byte_width // 2
    PARTS: gl.constexpr = v_smem.shape[2] // LINE
    CHUNKS: gl.constexpr = v_smem.shape[1] // CHUNK
    THREADS: gl.constexpr = LINE // UNIT
    layout: gl.constexpr = gl.BlockedLayout([1, UNIT], [32 // THREADS, THREADS], [4, 1], [1, 0])
    chunks = as_boxes(v_smem, CHUNK, LINE)
    rows = gl.arange(0, CHUNK, gl.SliceLayout(1, layout))
    for chunk in range(CHUNKS):
        if (chunk * CHUNK < first) | (chunk * CHUNK + CHUNK > stop):
            valid = (chunk * CHUNK + rows >= first) & (chunk * CHUNK + rows < stop)
            for part in gl.static_range(PARTS):
                target = chunks.index((stage * PARTS + part) * CHUNKS + chunk)
                target.store(gl.where(valid[:, None], target.load(layout), 0.0))
    fence_async_shared()
    thread_barrier()


@gluon.jit
def instruction(x, TEXT: gl.constexpr):
    return gl.inline_asm_elementwise(TEXT, "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def exp2(x):
    """2**x in one instruction; ``gl.exp2`` takes more, to keep subnormal numbers."""
    return instruction(x, "ex2.approx.ftz.f32 $0, $1;")


@gluon.jit
def log2(x):
    return instruction(x, "lg2.approx.ftz.f32 $0, $1;")


@gluon.jit
def store_lse(lse, first_token, first_head, rows, num_rows, row_max, row_sum, sinks, HEADS: gl.constexpr):
    """Write the log-sum-exp of a Q-Block's rows; ``sinks`` are in base 2, and None for none."""
    lse_ptr, stride = lse
    if sinks is not None:
        largest = gl.maximum(row_max, sinks)
        row_sum = row_sum * exp2(row_max - largest) + exp2(sinks - largest)
        row_max = largest
    lse_ptr += first_head.to(gl.int64) * stride + first_token
    values = (row_max + log2(row_sum)) * (1.0 / LOG2_E)
    gl.store(lse_ptr + (rows % HEADS) * stride + rows // HEADS, values, mask=rows < num_rows)


@gluon.jit
def float_of(x):
    """Convert integers from 0 to 2^23 - 1 to float32, anew each time: kept, they would fill registers."""
    return gl.inline_asm_elementwise(
        "{.reg .b32 bits; or.b32 bits, $1, 0x4B000000; add.f32 $0, bits, 0fCB000000;}",
        "=f,r",
        [x],
        dtype=gl.float32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def tanh(x):
    """The hyperbolic tangent in one instruction, with a relative error of 2^-11 (PTX ISA, tanh.approx)."""
    return instruction(x, "tanh.approx.f32 $0, $1;")


@gluon.jit
def mask_scores(scores, row_limit, row_last, start, window):
    """Scores of a tile that begins at key ``start``, -inf after each row's last key and before its window."""
    keys = gl.arange(0, scores.shape[1], gl.SliceLayout(0, scores.type.layout))
    visible = keys[None, :] <= (row_last - start)[:, None]
    if window is not None:
        visible = visible & (keys[None, :] > (row_limit - start)[:, None] - window)
    return gl.where(visible, scores, float("-inf"))


@gluon.jit
def softmax_step(scores, row_max, factor, PER_ROW: gl.constexpr):
    """Return a tile's weights, the factor of all earlier sums, and the new scaled maximum, in base 2.

    ``factor``: a positive number, or one for each row.
    """
    new_max = gl.maximum(row_max, gl.max(scores, 1) * factor)
    return weigh(scores, new_max, factor, PER_ROW), exp2(row_max - new_max), new_max


@gluon.jit
def weigh(scores, row_max, factor, PER_ROW: gl.constexpr):
    """The weights of scores, as ``softmax_step`` takes them, relative to a scaled maximum."""
    return exp2(scores * (factor[:, None] if PER_ROW else factor) - row_max[:, None])


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
def powers_of(largest):
    """The powers of two that are not above positive numbers, and their inverses."""
    exponents = largest.to(gl.int32, bitcast=True) & 0x7F800000
    return exponents.to(gl.float32, bitcast=True), (0x7F000000 - exponents).to(gl.float32, bitcast=True)


@gluon.jit
def rescale_rows(x, factor):
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
