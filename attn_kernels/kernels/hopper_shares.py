"""The copying warp of the Hopper kernel's decodes: what a program computes, and its keys and values.

Programs form groups, with one program for each KV head. The groups share the tiles of keys of all sequences
evenly, in the order of the sequences. Tiles before a window are not counted.
"""

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from attn_kernels.kernels.hopper_device import COLUMNS, UNIT, copy_tile, load_pages, send, view_memory

LENGTH = gl.constexpr(128)  # sequences that are searched at a time
FAR = gl.constexpr(2**31 - 1)  # behind all tiles


@gluon.jit
def clear_slots(smem):
    """Write zeros to a ring before its first use. They stay where no copy of a head's last columns writes."""
    layout: gl.constexpr = gl.BlockedLayout([1, UNIT], [4, 8], [4, 1], [1, 0])
    SLOTS: gl.constexpr = smem.shape[0]
    TILE_SIZE: gl.constexpr = smem.shape[1]
    zeros = gl.zeros([TILE_SIZE, COLUMNS], smem.dtype, layout)
    for slot in gl.static_range(SLOTS):
        smem.index(slot).store(zeros)


@gluon.jit
def share_of_group(total, num_kv_heads):
    """The tiles ``start .. end - 1`` of this program's group, of this many in all, and tiles per group."""
    groups = gl.num_programs(0) // num_kv_heads
    group = gl.program_id(0) // num_kv_heads
    share = (total + groups - 1) // groups
    start = group * share
    return start, gl.where(group < groups, gl.minimum(start + share, total), start), share


@gluon.jit
def share_of_program(cu_tiles_ptr, num_seqs, num_kv_heads):
    """A program's KV head, its tiles ``start .. end - 1``, tiles per group, and the first tile's sequence."""
    total = gl.load(cu_tiles_ptr + num_seqs)
    start, end, share = share_of_group(total, num_kv_heads)
    layout: gl.constexpr = gl.BlockedLayout([LENGTH // 32], [32], [1], [0])
    seq = start * 0 - 1
    for first in range(0, num_seqs, LENGTH):
        seqs = first + gl.arange(0, LENGTH, layout)
        first_tiles = gl.load(cu_tiles_ptr + seqs, mask=seqs < num_seqs, other=FAR)
        seq += gl.sum((first_tiles <= start).to(gl.int32), 0)
    return gl.program_id(0) % num_kv_heads, start, end, share, seq


@gluon.jit
def add(a, b):
    return a + b


@gluon.jit
def hidden_keys(num_keys, query_len, window):
    return gl.maximum(num_keys - query_len - window + 1, 0)


@gluon.jit
def windowed_tiles(batch, seqs, window, BLOCK_Q: gl.constexpr, TILE_SIZE: gl.constexpr):
    """Tiles of all Q-Blocks of sequences, without those that no query sees; 0 where there is no sequence."""
    _, num_seqs, _, cu_seqlens_q_ptr, seqused_k_ptr = batch
    exists = seqs < num_seqs
    seq_starts = gl.load(cu_seqlens_q_ptr + seqs, mask=exists, other=0)
    query_lens = gl.load(cu_seqlens_q_ptr + seqs + 1, mask=exists, other=0) - seq_starts
    num_keys = gl.load(seqused_k_ptr + seqs, mask=exists, other=0)
    tiles = (num_keys + TILE_SIZE - 1) // TILE_SIZE - hidden_keys(num_keys, query_lens, window) // TILE_SIZE
    return gl.maximum(tiles, 1) * ((query_lens + BLOCK_Q - 1) // BLOCK_Q)


@gluon.jit
def windowed_share(batch, window, BLOCK_Q: gl.constexpr, TILE_SIZE: gl.constexpr):
    """``share_of_program`` of a layer with a window, which the schedule does not know; its first tile."""
    _, num_seqs, num_kv_heads, _, _ = batch
    layout: gl.constexpr = gl.BlockedLayout([LENGTH // 32], [32], [1], [0])
    offsets = gl.arange(0, LENGTH, layout)
    total = num_seqs * 0
    for first in range(0, num_seqs, LENGTH):
        total += gl.sum(windowed_tiles(batch, first + offsets, window, BLOCK_Q, TILE_SIZE), 0)
    start, end, share = share_of_group(total, num_kv_heads)
    seq = num_seqs * 0
    first_tile = num_seqs * 0
    before = num_seqs * 0
    for first in range(0, num_seqs, LENGTH):
        tiles = windowed_tiles(batch, first + offsets, window, BLOCK_Q, TILE_SIZE)
        passed = before + gl.associative_scan(tiles, 0, add) <= start
        seq += gl.sum(passed.to(gl.int32), 0)
        first_tile += gl.sum(gl.where(passed, tiles, 0), 0)
        before += gl.sum(tiles, 0)
    return gl.program_id(0) % num_kv_heads, start, end, share, seq, first_tile


class DecodeBlock(NamedTuple):
    """A program's part of a Q-Block of a decode; the fields of a message.

    Keys and tiles count from the first tile that a query of the sequence sees.
    """

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
def view_slots(caches, ring, const: gl.constexpr):
    """A ring's slots as boxes of whole parts of a head, and of its last columns, if any remain."""
    k_desc, _, k_tail_desc, _, _, _, _, _ = caches
    smem, _, _ = ring
    WIDTH: gl.constexpr = k_desc.block_shape[1]
    shape: gl.constexpr = [smem.shape[0], smem.shape[1], WIDTH]
    layout: gl.constexpr = k_desc.layout
    boxes = view_memory(smem, k_desc.dtype, shape, layout)
    tail_boxes = boxes
    if const.head_size % WIDTH > 0:
        tail_layout: gl.constexpr = k_tail_desc.layout
        tail_boxes = view_memory(smem, k_desc.dtype, shape, tail_layout)
    return boxes, tail_boxes


@gluon.jit
def copy_slots(caches, ring, views, n, kv_head, tile, const: gl.constexpr):
    """Copy a tile's keys and values to the next slots; ``n`` were used before. Returns how many are now."""
    k_desc, v_desc, k_tail_desc, v_tail_desc, k_steps, v_steps, _, _ = caches
    smem, full, empty = ring
    boxes, tail_boxes = views
    pages, at, visible = tile
    SLOTS: gl.constexpr = smem.shape[0]
    WIDTH: gl.constexpr = k_desc.block_shape[1]  # of a slot
    PAGE_SIZE: gl.constexpr = const.page_size
    PARTS: gl.constexpr = const.head_size // WIDTH  # slots that are full
    REST: gl.constexpr = const.head_size % WIDTH
    SIDE: gl.constexpr = PARTS + (REST > 0)  # slots of a tile's keys
    SLOT_BYTES: gl.constexpr = smem.shape[1] * COLUMNS * 2
    for part in gl.static_range(2 * SIDE):
        slot = n % SLOTS
        barrier = full.index(slot)
        mbarrier.wait(empty.index(slot), (n // SLOTS) & 1 ^ 1)
        page_rows, head_rows, head_columns = k_steps if part < SIDE else v_steps
        column = kv_head * head_columns + part % SIDE * WIDTH
        place = (page_rows, kv_head * head_rows, column)
        if part % SIDE < PARTS:
            desc = k_desc if part < SIDE else v_desc
            mbarrier.expect(barrier, SLOT_BYTES)
            copy_tile(desc, boxes, slot, barrier, pages, at, visible, place, PAGE_SIZE)
        else:
            tail_desc = k_tail_desc if part < SIDE else v_tail_desc
            mbarrier.expect(barrier, SLOT_BYTES // WIDTH * REST)
            copy_tile(tail_desc, tail_boxes, slot, barrier, pages, at, visible, place, PAGE_SIZE, REST)
        n += 1
    return n


@gluon.jit
def produce_decodes(caches, channel, batch, window, const: gl.constexpr):
    """The copying warp. A slot holds 128 bytes of each key or value of a tile; keys come before values."""
    k_desc, _, _, _, _, _, block_table_ptr, stride_table = caches
    ring, mail = channel
    cu_tiles_ptr, num_seqs, num_kv_heads, cu_seqlens_q_ptr, seqused_k_ptr = batch
    TILE_SIZE: gl.constexpr = const.decode_tile
    BLOCK_Q: gl.constexpr = const.rows // const.heads
    PAGE_SIZE: gl.constexpr = const.page_size
    BOX: gl.constexpr = k_desc.block_shape[0]
    BOXES: gl.constexpr = TILE_SIZE // BOX
    views = view_slots(caches, ring, const)
    if window is None:
        kv_head, tile, end, share, seq = share_of_program(cu_tiles_ptr, num_seqs, num_kv_heads)
        first_tile = gl.load(cu_tiles_ptr + seq)  # of the sequence
    else:
        kv_head, tile, end, share, seq, first_tile = windowed_share(batch, window, BLOCK_Q, TILE_SIZE)
    n = tile * 0  # slots used before
    number = tile * 0
    while tile < end:
        if window is None:
            next_first = gl.load(cu_tiles_ptr + seq + 1)
        num_keys = gl.load(seqused_k_ptr + seq)
        seq_start = gl.load(cu_seqlens_q_ptr + seq)
        query_len = gl.load(cu_seqlens_q_ptr + seq + 1) - seq_start
        row_ptr = block_table_ptr + seq.to(gl.int64) * stride_table
        last_box = gl.maximum(num_keys - 1, 0) // BOX
        if window is None:
            tiles = gl.maximum((num_keys + TILE_SIZE - 1) // TILE_SIZE, 1)  # as ``schedule`` counts
            visible = (None, last_box)
            hidden: gl.constexpr = 0
        else:
            hidden = hidden_keys(num_keys, query_len, window)
            visible = (hidden // BOX, last_box)
            hidden = hidden // TILE_SIZE  # tiles
            tiles = gl.maximum((num_keys + TILE_SIZE - 1) // TILE_SIZE - hidden, 1)
            next_first = first_tile + tiles * ((query_len + BLOCK_Q - 1) // BLOCK_Q)
        while tile < gl.minimum(next_first, end):
            q_block = (tile - first_tile) // tiles
            block_tile = first_tile + q_block * tiles
            start = tile - block_tile
            stop = gl.minimum(start + end - tile, tiles)
            first_query = q_block * BLOCK_Q
            block = DecodeBlock(
                seq_start + first_query,
                gl.minimum(query_len - first_query, BLOCK_Q),
                num_keys - query_len + first_query - hidden * TILE_SIZE,
                num_keys - hidden * TILE_SIZE,
                start,
                stop,
                tiles,
                block_tile // share,
                (block_tile + tiles - 1) // share,
            )
            pages = load_pages(row_ptr, hidden + start, visible, PAGE_SIZE, BOX, BOXES)
            send(mail, number, block)
            number += 1
            for i in range(start, stop):
                at = hidden + i
                next_pages = load_pages(row_ptr, at + 1, visible, PAGE_SIZE, BOX, BOXES)
                n = copy_slots(caches, ring, views, n, kv_head, (pages, at, visible), const)
                pages = next_pages
            tile += stop - start
        first_tile = next_first
        seq += 1
    send(mail, number, DecodeBlock(0, 0, 0, 0, 0, 0, 0, 0, 0))
