"""The decodes' role of the Hopper kernel: one computing warpgroup and a copying warp.

Programs form groups, with one program for each KV head. The groups share the tiles of keys of all sequences
evenly, in the order of the sequences. So the programs of a group read the same slots of the caches at the
same time, and each reads its own head. Where several groups share a sequence, the last program to finish
joins their fragments without waiting, as in ``stream_k_fragments``. The copying warp knows what comes next,
and sends what the computing warpgroup must know of it.

The products are transposed: scores are keys times queries, and the output is values times weights. So keys
and values fill the 64 rows of a wgmma, and the few queries of a decode are its columns.
"""

from typing import Any, NamedTuple

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
    UNIT,
    copy_tile,
    exp2,
    load_pages,
    receive,
    row_offsets,
    send,
    thread_barrier,
    zero_rows,
)


@gluon.jit
def share_of_program(cu_tiles_ptr, num_seqs, num_kv_heads):
    """A program's KV head, its tiles ``start .. end - 1``, tiles a group, and the first tile's sequence."""
    groups = gl.num_programs(0) // num_kv_heads
    group = gl.program_id(0) // num_kv_heads
    total = gl.load(cu_tiles_ptr + num_seqs)
    share = (total + groups - 1) // groups
    start = group * share
    end = gl.where(group < groups, gl.minimum(start + share, total), start)
    low = start * 0
    high = low + num_seqs
    while high - low > 1:
        middle = (low + high) // 2
        before = gl.load(cu_tiles_ptr + middle) <= start
        low = gl.where(before, middle, low)
        high = gl.where(before, high, middle)
    return gl.program_id(0) % num_kv_heads, start, end, share, low


class DecodeBlock(NamedTuple):
    """A program's part of a Q-Block of a decode; the fields of a message."""

    first_token: Any  # within the batch
    num_queries: Any  # query tokens
    first_limit: Any  # the last key that its first query sees
    num_keys: Any  # of the sequence
    start: Any  # the first tile
    stop: Any  # behind the last tile; 0 in the last message
    tiles: Any  # of the whole Q-Block
    first_group: Any  # that shares the Q-Block
    last_group: Any


DECODE_FIELDS = gl.constexpr(len(DecodeBlock._fields))


@gluon.jit
def produce_decodes(
    caches, ring, mail, batch, BLOCK_Q: gl.constexpr, PARTS: gl.constexpr, PAGE_SIZE: gl.constexpr
):
    """The copying warp. A slot of the ring holds COLUMNS columns of a tile; keys come before values."""
    k_desc, v_desc, _k_tail_desc, _v_tail_desc, k_steps, v_steps, block_table_ptr, stride_table = caches
    smem, full, empty = ring
    cu_tiles_ptr, num_seqs, num_kv_heads, cu_seqlens_q_ptr, seqused_k_ptr = batch
    SLOTS: gl.constexpr = smem.shape[0]
    TILE_SIZE: gl.constexpr = smem.shape[1]
    BOX: gl.constexpr = k_desc.block_shape[0]
    BOXES: gl.constexpr = TILE_SIZE // BOX
    SLOT_BYTES: gl.constexpr = TILE_SIZE * COLUMNS * 2
    kv_head, tile, end, share, seq = share_of_program(cu_tiles_ptr, num_seqs, num_kv_heads)
    k_page_rows, k_head_rows, k_head_columns = k_steps
    v_page_rows, v_head_rows, v_head_columns = v_steps
    first_tile = gl.load(cu_tiles_ptr + seq)  # of the sequence
    n = tile * 0  # slots used before
    number = tile * 0
    while tile < end:
        next_first = gl.load(cu_tiles_ptr + seq + 1)
        num_keys = gl.load(seqused_k_ptr + seq)
        seq_start = gl.load(cu_seqlens_q_ptr + seq)
        query_len = gl.load(cu_seqlens_q_ptr + seq + 1) - seq_start
        row_ptr = block_table_ptr + seq.to(gl.int64) * stride_table
        tiles = gl.maximum((num_keys + TILE_SIZE - 1) // TILE_SIZE, 1)  # as ``schedule`` counts
        last_box = gl.maximum(num_keys - 1, 0) // BOX
        while tile < gl.minimum(next_first, end):
            q_block = (tile - first_tile) // tiles
            block_tile = first_tile + q_block * tiles
            start = tile - block_tile
            stop = gl.minimum(start + end - tile, tiles)
            first_query = q_block * BLOCK_Q
            block = DecodeBlock(
                seq_start + first_query,
                gl.minimum(query_len - first_query, BLOCK_Q),
                num_keys - query_len + first_query,
                num_keys,
                start,
                stop,
                tiles,
                block_tile // share,
                (block_tile + tiles - 1) // share,
            )
            pages = load_pages(row_ptr, start, None, last_box, PAGE_SIZE, BOX, BOXES)
            send(mail, number, block)
            number += 1
            for i in range(start, stop):
                next_pages = load_pages(row_ptr, i + 1, None, last_box, PAGE_SIZE, BOX, BOXES)
                for part in gl.static_range(2 * PARTS):
                    slot = n % SLOTS
                    barrier = full.index(slot)
                    mbarrier.wait(empty.index(slot), (n // SLOTS) & 1 ^ 1)
                    mbarrier.expect(barrier, SLOT_BYTES)
                    if part < PARTS:
                        k_column = kv_head * k_head_columns + part * COLUMNS
                        place = (k_page_rows, kv_head * k_head_rows, k_column)
                        copy_tile(
                            k_desc, smem, slot, barrier, pages, i, None, last_box, place, PAGE_SIZE, BOX
                        )
                    else:
                        v_column = kv_head * v_head_columns + (part - PARTS) * COLUMNS
                        place = (v_page_rows, kv_head * v_head_rows, v_column)
                        copy_tile(
                            v_desc, smem, slot, barrier, pages, i, None, last_box, place, PAGE_SIZE, BOX
                        )
                    n += 1
                pages = next_pages
            tile += stop - start
        first_tile = next_first
        seq += 1
    send(mail, number, DecodeBlock(0, 0, 0, 0, 0, 0, 0, 0, 0))


@gluon.jit
def attend_share(smems, n, start, stop, num_keys, first_limit, scale_log2, HEADS: gl.constexpr):
    """The softmax state of a Q-Block after its tiles ``start .. stop - 1``, and the slots used so far.

    The state is one tensor [COLUMNS, rows] for each part of the columns, the maxima [rows], and the sums
    [rows].
    """
    q_smem, p_smem, ring = smems
    smem, full, empty = ring
    dtype: gl.constexpr = smem.dtype
    SLOTS: gl.constexpr = smem.shape[0]
    TILE_SIZE: gl.constexpr = smem.shape[1]
    PARTS: gl.constexpr = q_smem.shape[0]
    ROWS: gl.constexpr = q_smem.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    row_layout: gl.constexpr = gl.SliceLayout(0, layout)
    accs = ()
    for _ in gl.static_range(PARTS):
        accs = accs + (gl.zeros([COLUMNS, ROWS], gl.float32, layout),)  # type: ignore[assignment]  # noqa: RUF005
    sums = gl.zeros([TILE_SIZE, ROWS], gl.float32, layout)
    row_max = gl.full([ROWS], -1e30, gl.float32, row_layout)
    for i in range(start, stop):
        scores = gl.zeros([TILE_SIZE, ROWS], gl.float32, layout)
        for part in gl.static_range(PARTS):
            slot = (n + part) % SLOTS
            mbarrier.wait(full.index(slot), ((n + part) // SLOTS) & 1)
            queries = q_smem.index(part).permute([1, 0])
            scores = warpgroup_mma(smem.index(slot), queries, scores, use_acc=part > 0, is_async=True)
        scores = warpgroup_mma_wait(0, [scores])
        for part in gl.static_range(PARTS):
            mbarrier.arrive(empty.index((n + part) % SLOTS), count=1)
        n += PARTS
        if (i + 1) * TILE_SIZE > first_limit + 1:
            keys = i * TILE_SIZE + gl.arange(0, TILE_SIZE, gl.SliceLayout(1, layout))
            limits = first_limit + gl.arange(0, ROWS, row_layout) // HEADS
            scores = gl.where(keys[:, None] <= limits[None, :], scores, float("-inf"))
        new_max = gl.maximum(row_max, gl.max(scores, 0) * scale_log2)
        weights = exp2(scores * scale_log2 - new_max[None, :])
        rescale = exp2(row_max - new_max)[None, :]
        row_max = new_max
        sums = sums * rescale + weights
        p_smem.permute([1, 0]).store(weights.to(dtype))
        fence_async_shared()
        products = ()
        for part in gl.static_range(PARTS):
            slot = (n + part) % SLOTS
            mbarrier.wait(full.index(slot), ((n + part) // SLOTS) & 1)
            if (i + 1) * TILE_SIZE > num_keys:
                zero_rows(smem, slot, None, num_keys - i * TILE_SIZE)
            values = smem.index(slot).permute([1, 0])
            product = warpgroup_mma(values, p_smem.permute([1, 0]), accs[part] * rescale, is_async=True)
            products = products + (product,)  # type: ignore[assignment]  # noqa: RUF005
        accs = ()
        for part in gl.static_range(PARTS):
            accs = accs + (warpgroup_mma_wait(PARTS - 1 - part, [products[part]]),)  # type: ignore[assignment]  # noqa: RUF005
        for part in gl.static_range(PARTS):
            mbarrier.arrive(empty.index((n + part) % SLOTS), count=1)
        n += PARTS
    return accs, row_max, gl.sum(sums, 0), n


@gluon.jit
def store_fragment(fragments, fragment, offsets, accs, row_max, row_sum, rows, ROWS: gl.constexpr):
    """Write a softmax state: [fragments, parts, COLUMNS, rows] and twice [fragments, rows]."""
    _, partial_ptr, max_ptr, sum_ptr = fragments
    PARTS: gl.constexpr = len(accs)
    for part in gl.static_range(PARTS):
        first = (fragment * PARTS + part).to(gl.int64) * (COLUMNS * ROWS)
        gl.store(partial_ptr + first + offsets, accs[part])
    gl.store(max_ptr + fragment * ROWS + rows, row_max)
    gl.store(sum_ptr + fragment * ROWS + rows, row_sum)


@gluon.jit
def join_fragments(
    fragments, first, last, num_kv_heads, offsets, rows, PARTS: gl.constexpr, ROWS: gl.constexpr
):
    """The results of a Q-Block from the fragments of the programs ``first .. last`` of its head.

    They are joined in the order of the programs, whichever finished last, so every launch gives the same
    sums. The first program began the Q-Block; all others continued it.
    """
    layout: gl.constexpr = offsets.type.layout
    partial_ptr, max_ptr, sum_ptr = fragments[1], fragments[2], fragments[3]
    begun = first + gl.num_programs(0)
    largest = gl.load(max_ptr + begun * ROWS + rows, cache_modifier=".cg")
    for program in range(first + num_kv_heads, last + 1, num_kv_heads):
        largest = gl.maximum(largest, gl.load(max_ptr + program * ROWS + rows, cache_modifier=".cg"))
    row_sum = largest * 0.0
    accs = ()
    for part in gl.static_range(PARTS):
        acc = gl.zeros([COLUMNS, ROWS], gl.float32, layout)
        for program in range(first, last + 1, num_kv_heads):
            fragment = gl.where(program == first, begun, program)
            weight = exp2(gl.load(max_ptr + fragment * ROWS + rows, cache_modifier=".cg") - largest)
            if part == 0:
                row_sum += weight * gl.load(sum_ptr + fragment * ROWS + rows, cache_modifier=".cg")
            place = (fragment * PARTS + part).to(gl.int64) * (COLUMNS * ROWS)
            more = gl.load(partial_ptr + place + offsets, cache_modifier=".cg")
            acc += more * weight[None, :]
        accs = accs + (acc,)  # type: ignore[assignment]  # noqa: RUF005
    return accs, row_sum


@gluon.jit
def consume_decodes(tensors, smems, mail, fragments, num_kv_heads, HEADS: gl.constexpr):
    """The computing warpgroup, which computes this program's share of the decodes."""
    q_ptr, out_ptr, strides, scoring = tensors
    scale_log2 = scoring.factor
    stride_q_token, stride_q_head, stride_out_token, stride_out_head = strides
    q_smem = smems[0]
    dtype: gl.constexpr = q_smem.dtype
    PARTS: gl.constexpr = q_smem.shape[0]
    ROWS: gl.constexpr = q_smem.shape[1]
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, ROWS, 16])
    THREADS: gl.constexpr = COLUMNS // UNIT
    io_layout: gl.constexpr = gl.BlockedLayout([1, UNIT], [32 // THREADS, THREADS], [4, 1], [1, 0])
    io_rows = gl.arange(0, ROWS, gl.SliceLayout(1, io_layout))
    io_columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, io_layout))[None, :]
    rows = gl.arange(0, ROWS, gl.SliceLayout(0, layout))
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(1, layout))
    offsets = columns[:, None] * ROWS + rows[None, :]
    program = gl.program_id(0)
    kv_head = program % num_kv_heads
    q_ptr += kv_head * HEADS * stride_q_head * UNIT
    out_ptr += kv_head * HEADS * stride_out_head * UNIT
    token, num_queries, first_limit, num_keys, start, stop, tiles, first, last = receive(mail, 0)
    n = stop * 0
    number = stop * 0
    while stop > 0:
        num_rows = num_queries * HEADS
        q_offsets = row_offsets(io_rows, stride_q_token, stride_q_head, HEADS)[:, None] + io_columns
        q_ptrs = q_ptr + token.to(gl.int64) * stride_q_token * UNIT + q_offsets
        for part in gl.static_range(PARTS):
            queries = gl.load(q_ptrs + part * COLUMNS, mask=(io_rows < num_rows)[:, None], other=0.0)
            q_smem.index(part).store(queries)
        fence_async_shared()
        accs, row_max, row_sum, n = attend_share(
            smems, n, start, stop, num_keys, first_limit, scale_log2, HEADS
        )
        finished = (start == 0) & (stop == tiles)
        if (start > 0) | (stop < tiles):
            fragment = gl.where(start == 0, program + gl.num_programs(0), program)
            store_fragment(fragments, fragment, offsets, accs, row_max, row_sum, rows, ROWS)
            counter_ptr = fragments[0] + (first * num_kv_heads + kv_head)
            thread_barrier()  # all threads write the fragment, one adds to the counter
            arrived = gl.atomic_add(counter_ptr, 1, sem="acq_rel", scope="gpu")
            finished = arrived == last - first
            if finished:
                gl.store(counter_ptr, 0)  # for the next launch
                accs, row_sum = join_fragments(
                    fragments,
                    first * num_kv_heads + kv_head,
                    last * num_kv_heads + kv_head,
                    num_kv_heads,
                    offsets,
                    rows,
                    PARTS,
                    ROWS,
                )
        if finished:
            out_offsets = row_offsets(rows, stride_out_token, stride_out_head, HEADS)[None, :]
            out_token_ptr = out_ptr + token.to(gl.int64) * stride_out_token * UNIT
            out_ptrs = out_token_ptr + (out_offsets + columns[:, None])
            mask = (rows < num_rows)[None, :] & (columns < COLUMNS)[:, None]
            for part in gl.static_range(PARTS):
                values = (accs[part] / row_sum[None, :]).to(dtype)
                gl.store(out_ptrs + part * COLUMNS, values, mask=mask)
        number += 1
        token, num_queries, first_limit, num_keys, start, stop, tiles, first, last = receive(mail, number)
