"""Rows of a Q-Block of the Hopper kernel: its queries to shared memory, and its results to the output."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from attn_kernels.kernels.hopper_device import (
    GROUP_ROWS,
    UNIT,
    padded,
    powers_of,
    rescale_rows,
    row_offsets,
    view_memory,
)


@gluon.jit
def load_queries(
    q_smem, GROUP: gl.constexpr, q_ptr, strides, num_rows, HEADS: gl.constexpr, HEAD_SIZE: gl.constexpr
):
    """Copy a warpgroup's rows of queries to shared memory, chunk after chunk of their columns."""
    for chunk in gl.static_range(len(q_smem)):
        smem = q_smem[chunk].index(GROUP)
        offsets, mask = chunk_offsets(q_smem, chunk, GROUP, strides, num_rows, HEADS, HEAD_SIZE)
        smem.store(gl.load(q_ptr + offsets, mask=mask, other=0.0))
        q_ptr += smem.shape[1]
    fence_async_shared()


@gluon.jit
def split_queries(
    q_smem,
    GROUP: gl.constexpr,
    q_ptr,
    strides,
    num_rows,
    HEADS: gl.constexpr,
    HEAD_SIZE: gl.constexpr,
    row_layout: gl.constexpr,
):
    """Store a warpgroup's queries as sums of two fp8 numbers; return the power of two that divides each row.

    A number of bf16 has 8 significant bits, and e4m3 has 4. So both numbers hold it, but for what is below
    2^-17 of the row's largest.
    """
    queries = ()
    largest = gl.full([GROUP_ROWS], 1e-30, gl.float32, row_layout)
    for chunk in gl.static_range(len(q_smem)):
        offsets, mask = chunk_offsets(q_smem, chunk, GROUP, strides, num_rows, HEADS, HEAD_SIZE)
        loaded = gl.load(q_ptr + offsets, mask=mask, other=0.0).to(gl.float32)
        largest = gl.maximum(largest, gl.convert_layout(gl.max(gl.abs(loaded), 1), row_layout))
        queries = queries + (loaded,)  # type: ignore[assignment]  # noqa: RUF005
        q_ptr += q_smem[chunk].shape[2]
    powers, inverse = powers_of(largest)
    inverse *= 128.0
    for chunk in gl.static_range(len(q_smem)):
        x = rescale_rows(queries[chunk], inverse)
        high = x.to(q_smem[chunk].dtype)
        q_smem[chunk].index(2 * GROUP).store(high)
        q_smem[chunk].index(2 * GROUP + 1).store((x - high.to(gl.float32)).to(q_smem[chunk].dtype))
    fence_async_shared()
    return powers * 0.0078125


@gluon.jit
def chunk_offsets(
    smems,
    CHUNK: gl.constexpr,
    GROUP: gl.constexpr,
    strides,
    num_rows,
    HEADS: gl.constexpr,
    HEAD_SIZE: gl.constexpr,
):
    """Offsets of a chunk of a warpgroup's rows in q or the output, in accesses of 16 bytes, and its mask."""
    WIDTH: gl.constexpr = smems[CHUNK].shape[2]
    THREADS: gl.constexpr = WIDTH // UNIT
    layout: gl.constexpr = gl.BlockedLayout([1, UNIT], [32 // THREADS, THREADS], [4, 1], [1, 0])
    rows = GROUP * GROUP_ROWS + gl.arange(0, GROUP_ROWS, gl.SliceLayout(1, layout))
    columns = gl.arange(0, WIDTH, gl.SliceLayout(0, layout))[None, :]
    mask = (rows < num_rows)[:, None]
    if len(smems) - 1 == CHUNK and padded(HEAD_SIZE) > HEAD_SIZE:
        mask = mask & (columns < WIDTH - padded(HEAD_SIZE) + HEAD_SIZE)
    return row_offsets(rows, strides[0], strides[1], HEADS)[:, None] + columns, mask


@gluon.jit
def store_output(
    smems,
    GROUP: gl.constexpr,
    out_ptr,
    strides,
    num_rows,
    accs,
    factor,
    HEADS: gl.constexpr,
    HEAD_SIZE: gl.constexpr,
):
    """Write a warpgroup's rows, times a factor each, to the output through the memory of its queries."""
    for chunk in gl.static_range(len(smems)):
        offsets, mask = chunk_offsets(smems, chunk, GROUP, strides, num_rows, HEADS, HEAD_SIZE)
        store_chunk(smems[chunk], GROUP, out_ptr + offsets, mask, accs[chunk], factor)
        out_ptr += smems[chunk].shape[2]


@gluon.jit
def store_chunk(q_smem, GROUP: gl.constexpr, out_ptrs, mask, acc, factor):
    """Write a chunk of the columns of ``store_output``."""
    dtype: gl.constexpr = out_ptrs.dtype.element_ty
    WIDTH: gl.constexpr = q_smem.shape[2]
    shape: gl.constexpr = [2, GROUP_ROWS, WIDTH]
    smem_layout: gl.constexpr = gl.NVMMASharedLayout(min(2 * WIDTH, 128), 16, rank=2)
    smem = view_memory(q_smem, dtype, shape, smem_layout).index(GROUP)
    smem.store(rescale_rows(acc, factor).to(dtype))
    layout: gl.constexpr = out_ptrs.type.layout
    gl.store(out_ptrs, smem.load(layout), mask=mask)
