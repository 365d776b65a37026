"""Q-Blocks of the Hopper kernel's prompts: rows, the order of tiles, and which are computed twice.

docs/kernels.md says why ("One maximum per row"). If a row's sum grows beyond 2^64 in bf16 or 60,000 in fp16,
the warpgroup notes the Q-Block's ticket, and the copying warp sends it again when no other tickets are left.
After the first, all Q-Blocks of the program compute the maximum of every tile. In fp16, the first tile always
does, because first tokens often have scores far above the others (attention sinks, arXiv 2309.17453).
"""

import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from attn_kernels.kernels import arguments, hopper_limits
from attn_kernels.kernels.hopper_device import (
    GROUP_ROWS,
    UNIT,
    padded,
    powers_of,
    rescale_rows,
    row_offsets,
    view_memory,
)

head_padded = triton.constexpr_function(arguments.head_padded)


@gluon.jit
def load_queries(q_smem, GROUP: gl.constexpr, q_ptr, strides, num_rows, const: gl.constexpr):
    """Copy a warpgroup's rows of queries to shared memory, chunk after chunk of their columns."""
    for chunk in gl.static_range(len(q_smem)):
        smem = q_smem[chunk].index(GROUP)
        offsets, mask = chunk_offsets(q_smem, chunk, GROUP, strides, num_rows, const)
        smem.store(gl.load(q_ptr + offsets, mask=mask, other=0.0))
        q_ptr += smem.shape[1]
    fence_async_shared()


@gluon.jit
def split_queries(
    q_smem, GROUP: gl.constexpr, q_ptr, strides, num_rows, row_layout: gl.constexpr, const: gl.constexpr
):
    """Store a warpgroup's queries as sums of two fp8 numbers; return the power of two that divides each row.

    A number of bf16 has 8 significant bits, and e4m3 has 4. So both numbers hold it, but for what is below
    2^-17 of the row's largest.
    """
    queries = ()
    largest = gl.full([GROUP_ROWS], 1e-30, gl.float32, row_layout)
    for chunk in gl.static_range(len(q_smem)):
        offsets, mask = chunk_offsets(q_smem, chunk, GROUP, strides, num_rows, const)
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
def chunk_offsets(smems, CHUNK: gl.constexpr, GROUP: gl.constexpr, strides, num_rows, const: gl.constexpr):
    """Offsets of a chunk of a warpgroup's rows in q or the output, in accesses of 16 bytes, and its mask."""
    WIDTH: gl.constexpr = smems[CHUNK].shape[2]
    THREADS: gl.constexpr = WIDTH // UNIT
    layout: gl.constexpr = gl.BlockedLayout([1, UNIT], [32 // THREADS, THREADS], [4, 1], [1, 0])
    rows = GROUP * GROUP_ROWS + gl.arange(0, GROUP_ROWS, gl.SliceLayout(1, layout))
    columns = gl.arange(0, WIDTH, gl.SliceLayout(0, layout))[None, :]
    mask = (rows < num_rows)[:, None]
    UNUSED: gl.constexpr = padded(const.head_size) - const.head_size
    if len(smems) - 1 == CHUNK and UNUSED > 0:
        mask = mask & (columns < WIDTH - UNUSED)
    return row_offsets(rows, strides[0], strides[1], const.heads)[:, None] + columns, mask


@gluon.jit
def store_output(smems, GROUP: gl.constexpr, out_ptr, strides, num_rows, accs, factor, const: gl.constexpr):
    """Write a warpgroup's rows, times a factor each, to the output through the memory of its queries."""
    for chunk in gl.static_range(len(smems)):
        offsets, mask = chunk_offsets(smems, chunk, GROUP, strides, num_rows, const)
        store_chunk(smems[chunk], GROUP, out_ptr + offsets, mask, accs[chunk], factor)
        out_ptr += smems[chunk].shape[2]


@gluon.jit
def store_chunk(q_smem, GROUP: gl.constexpr, out_ptrs, mask, acc, factor):
    dtype: gl.constexpr = out_ptrs.dtype.element_ty
    WIDTH: gl.constexpr = q_smem.shape[2]
    shape: gl.constexpr = [2, GROUP_ROWS, WIDTH]
    smem_layout: gl.constexpr = gl.NVMMASharedLayout(min(2 * WIDTH, 128), 16, rank=2)
    smem = view_memory(q_smem, dtype, shape, smem_layout).index(GROUP)
    smem.store(rescale_rows(acc, factor).to(dtype))
    layout: gl.constexpr = out_ptrs.type.layout
    gl.store(out_ptrs, smem.load(layout), mask=mask)


@gluon.jit
def store_split(partials, place, GROUP: gl.constexpr, accs, row_max, row_sums, v_scale, const: gl.constexpr):
    """Write a warpgroup's softmax state of a split, as ``splits.store_partial`` does.

    place: the first token and query head, how many rows there are, and the split.
    """
    partial_ptr, max_ptr, sum_ptr, num_splits, num_query_heads = partials
    num_rows = place[2]
    sizes = (num_splits, num_query_heads)
    layout: gl.constexpr = row_max.type.layout
    places, rows = places_of_rows(place, sizes, GROUP, layout, const)
    gl.store(max_ptr + places, row_max, mask=rows < num_rows)
    gl.store(sum_ptr + places, row_sums, mask=rows < num_rows)
    for chunk in gl.static_range(len(accs)):
        values = accs[chunk]
        if v_scale is not None:
            values *= v_scale
        store_values(partial_ptr, values, place, sizes, GROUP, const)
        partial_ptr += accs[chunk].shape[1]


@gluon.jit
def store_values(ptr, values, place, sizes, GROUP: gl.constexpr, const: gl.constexpr):
    STRIDE: gl.constexpr = head_padded(const.head_size)
    layout: gl.constexpr = values.type.layout
    of_rows: gl.constexpr = gl.SliceLayout(1, layout)
    places, rows = places_of_rows(place, sizes, GROUP, of_rows, const)
    columns = gl.arange(0, values.shape[1], gl.SliceLayout(0, layout))
    gl.store(ptr + (places * STRIDE)[:, None] + columns[None, :], values, mask=(rows < place[2])[:, None])


@gluon.jit
def places_of_rows(place, sizes, GROUP: gl.constexpr, layout: gl.constexpr, const: gl.constexpr):
    HEADS: gl.constexpr = const.heads
    num_splits, num_query_heads = sizes
    first_token, first_head, _, split = place
    rows = GROUP * GROUP_ROWS + gl.arange(0, GROUP_ROWS, layout)
    heads = (first_token + rows // HEADS) * num_query_heads + first_head + rows % HEADS
    return heads * num_splits + split, rows


LINE = gl.constexpr(1 + hopper_limits.MAX_REPEATS)  # a warpgroup's count and its tickets


@gluon.jit
def allocate_repeats():
    layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    smem = gl.allocate_shared_memory(gl.int32, [2 * LINE, 1], layout)
    for group in gl.static_range(2):
        smem.index(group * LINE).store(gl.full([1], 0, gl.int32, gl.BlockedLayout([1], [32], [4], [0])))
    return smem


@gluon.jit
def comes_second(hidden, dtype: gl.constexpr):
    """1 if a Q-Block's first tile is visited second; its first ``hidden`` keys are before all windows."""
    second = hidden * 0
    if dtype == gl.float16:
        second = gl.where(hidden == 0, 1, 0)
    return second


@gluon.jit
def visited_tile(visit, last, second):
    """The tile of a visit: from tile ``last`` on downwards, but tile 0 second if ``second`` is 1."""
    return gl.where((visit == 1) & (second == 1), 0, last - visit + gl.where(visit > 0, second, 0))


@gluon.jit
def note_large(repeats, GROUP: gl.constexpr, count, ticket, thread_sums, dtype: gl.constexpr):
    """Note the ticket if a thread's sum is too large; return the warpgroup's count of noted tickets.

    No weight is larger than the sum of its thread, and the largest number of fp16 is 65,504.
    """
    LARGEST_SUM: gl.constexpr = 2.0**64 if dtype == gl.bfloat16 else 60000.0
    if gl.max(gl.max(thread_sums, 1), 0) > LARGEST_SUM:
        layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
        count += 1
        repeats.index(GROUP * LINE + count).store(gl.full([1], ticket, gl.int32, layout))
        repeats.index(GROUP * LINE).store(gl.full([1], count, gl.int32, layout))
    return count


@gluon.jit
def count_repeats(repeats, GROUP: gl.constexpr):
    return read(repeats, GROUP * LINE)


@gluon.jit
def ticket_to_repeat(repeats, number):
    """The ticket that is repeated as number ``number``; -1 if there are fewer."""
    first, second = count_repeats(repeats, 0), count_repeats(repeats, 1)
    ticket = number * 0 - 1
    if number < first:
        ticket = read(repeats, 1 + number)
    elif number < first + second:
        ticket = read(repeats, LINE + 1 + number - first)
    return ticket


@gluon.jit
def read(repeats, place):
    return gl.max(repeats.index(place).load(gl.BlockedLayout([1], [32], [1], [0])), 0)
