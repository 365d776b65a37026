"""The copies of the Hopper kernel's prompts: tickets, TMA copies of keys and values, and fp8 values in fp16.

A ticket is the number of a Q-Block, a split of its keys and a KV head. The copying warp begins the next while
the warpgroups finish the last.
"""

from typing import Any, NamedTuple

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from attn_kernels.kernels.hopper_device import (
    UNIT,
    copy_tile,
    last_seen,
    load_pages,
    padded,
    receive,
    send,
    thread_barrier,
)
from attn_kernels.kernels.hopper_q_blocks import comes_second, count_repeats, ticket_to_repeat, visited_tile


class PromptBlock(NamedTuple):
    kv_head: Any  # of a prompt's Q-Block, like all fields of this message
    first_token: Any  # within the batch
    num_queries: Any  # query tokens
    first_limit: Any  # the last key that its first query sees
    num_keys: Any  # of the sequence
    first_key: Any  # that the split computes
    num_tiles: Any  # up to the split's last, of those that the last query sees; 0 in the last message
    split: Any  # -1 if it is the only one
    ticket: Any
    exact: Any  # not 0 if the maximum of every tile is to be computed


PROMPT_FIELDS = gl.constexpr(len(PromptBlock._fields))


@gluon.jit
def load_q_block(batch, window, ticket, most_splits, exact, TILE_SIZE: gl.constexpr):
    """The Q-Block, split and KV head of a ticket, without tiles if its split does not exist; the sequence.

    The splits of Q-Blocks that may have several come first, then the other Q-Blocks. Tickets of one split
    follow each other, because they read the same keys.
    """
    tickets, num_kv_heads, splits, ahead = batch
    _, q_blocks_ptr, _, splittable, _ = tickets
    q_block = ticket // num_kv_heads
    split = ticket * 0
    if q_block < splittable * most_splits:
        split = q_block // splittable
        q_block %= splittable
    else:
        q_block -= splittable * (most_splits - 1)
    entry_ptr = q_blocks_ptr + 5 * q_block
    seq = gl.load(entry_ptr)
    first_token = gl.load(entry_ptr + 1)
    num_queries = gl.load(entry_ptr + 2)
    first_limit = gl.load(entry_ptr + 3)
    num_keys = gl.load(entry_ptr + 4)
    # At least one: rows that see no key are written, too.
    num_tiles = gl.maximum(last_seen(first_limit + num_queries - 1, num_keys, ahead), 0) // TILE_SIZE + 1
    first_tile, num_tiles, split = tiles_of_split(splits, window, split, num_tiles, TILE_SIZE)
    limits = (num_queries, first_limit, num_keys, first_tile * TILE_SIZE, num_tiles)
    return PromptBlock(ticket % num_kv_heads, first_token, *limits, split, ticket, exact), seq


@gluon.jit
def tiles_of_split(splits, window, split, tiles, TILE_SIZE: gl.constexpr):
    """The first tile of a split, the one behind its last (0 without tiles), and its number (-1 if it is all).

    As ``splits.split_range`` says, but a layer with a window has one split.
    """
    first = tiles * 0
    stop = tiles
    number = first - 1
    count = count_splits(splits, window, tiles, TILE_SIZE)
    if count > 1:
        each = (tiles + count - 1) // count
        first = split * each
        stop = gl.where(first < tiles, gl.minimum(first + each, tiles), 0)
        number = split
    elif split > 0:
        stop = first
    return first, stop, number


@gluon.jit
def count_splits(splits, window, tiles, TILE_SIZE: gl.constexpr):
    count = tiles * 0 + 1
    if splits is not None:  # noqa: SIM102  # the compiler knows both
        if window is None:
            split_keys, num_splits = splits
            if split_keys < tiles * TILE_SIZE:
                split_tiles = gl.maximum((split_keys + TILE_SIZE // 2) // TILE_SIZE, 1)
                count = gl.minimum(gl.maximum((tiles + split_tiles // 2) // split_tiles, 1), num_splits)
    return count


@gluon.jit
def first_key(block, window):
    key = block.first_key
    if window is not None:
        key = gl.maximum(block.first_limit - window + 1, 0)
    return key


@gluon.jit
def wait_for_stage(ring, index):
    """Wait until the ring's stage for tile number ``index`` is free; return the stage and its barrier."""
    full = ring[len(ring) - 2]
    empty = ring[len(ring) - 1]
    STAGES: gl.constexpr = full.shape[0]
    mbarrier.wait(empty.index(index % STAGES), (index // STAGES) & 1 ^ 1)
    return index % STAGES, full.index(index % STAGES)


@gluon.jit
def copy_heads(heads, smems, stage, barrier, pages, tile, visible, PAGE_SIZE: gl.constexpr):
    """Start the copies of a tile into the chunks of its columns; heads: descriptors, and a head's place."""
    desc, tail_desc, page_rows, first_row, column = heads
    for chunk in gl.static_range(len(smems)):
        smem = smems[chunk]
        at = (page_rows, first_row, column)
        if smem.shape[2] >= desc.block_shape[1]:
            copy_tile(desc, smem, stage, barrier, pages, tile, visible, at, PAGE_SIZE)
        else:
            copy_tile(tail_desc, smem, stage, barrier, pages, tile, visible, at, PAGE_SIZE)
        column += smem.shape[2]


@gluon.jit
def produce_prompts(caches, rings, signals, batch, window, const: gl.constexpr):
    """The copying warp. A stage holds the keys of one tile and the values of the tile visited before.

    The warpgroups multiply both at the same time, so one barrier announces them and one frees them. fp8
    values arrive in a ring of their own, ``raw_ring``, and ``convert_values`` brings them to the stages.
    """
    k_desc, v_desc, k_tail, v_tail, k_steps, v_steps, block_table_ptr, stride_table = caches
    ring, raw_ring = rings
    mail, repeats = signals
    k_smem = ring[0]
    v_smem = ring[1]
    if raw_ring is not None:
        raw_v = raw_ring[0]
    TILE_SIZE: gl.constexpr = k_smem[0].shape[1]
    STAGES: gl.constexpr = ring[2].shape[0]
    PAGE_SIZE: gl.constexpr = const.page_size
    BOX: gl.constexpr = k_desc.block_shape[0]
    BOXES: gl.constexpr = TILE_SIZE // BOX
    TILE_BYTES: gl.constexpr = TILE_SIZE * padded(const.head_size) * k_smem[0].dtype.primitive_bitwidth // 8
    k_page_rows, k_head_rows, k_head_columns = k_steps
    v_page_rows, v_head_rows, v_head_columns = v_steps
    counters_ptr, _, num_q_blocks, splittable, longest = batch[0]
    most_splits = count_splits(batch[2], window, (longest + TILE_SIZE - 1) // TILE_SIZE, TILE_SIZE)
    num_tickets = (num_q_blocks + splittable * (most_splits - 1)) * batch[1]
    ticket = gl.atomic_add(counters_ptr, 1)
    number = ticket * 0
    base = ticket * 0  # stages used for earlier Q-Blocks
    repeated = ticket * 0
    if ticket >= num_tickets:
        ticket = number - 1
    while ticket >= 0:
        next_ticket = gl.atomic_add(counters_ptr, 1)
        exact = count_repeats(repeats, 0) + count_repeats(repeats, 1)
        block, seq = load_q_block(batch, window, ticket, most_splits, exact, TILE_SIZE)
        hidden = first_key(block, window)
        num_tiles = block.num_tiles - hidden // TILE_SIZE
        visits = gl.where(block.num_tiles > 0, num_tiles + 1, 0)
        if visits > 0:
            send(mail, number, block)
            number += 1
        second = comes_second(hidden, v_smem[0].dtype)
        first_box = hidden // BOX
        row_ptr = block_table_ptr + seq.to(gl.int64) * stride_table
        k_heads = (k_desc, k_tail, k_page_rows, block.kv_head * k_head_rows, block.kv_head * k_head_columns)
        v_heads = (v_desc, v_tail, v_page_rows, block.kv_head * v_head_rows, block.kv_head * v_head_columns)
        last_key = last_seen(block.first_limit + block.num_queries - 1, block.num_keys, batch[3])
        visible = (first_box, gl.maximum(last_key, 0) // BOX)
        last = block.num_tiles - 1
        # Two calls, because Triton takes two names of one tuple for one variable of the loop.
        pages = load_pages(row_ptr, last, visible, PAGE_SIZE, BOX, BOXES)
        v_pages = load_pages(row_ptr, last, visible, PAGE_SIZE, BOX, BOXES)
        for i in range(visits):
            tile = visited_tile(i, last, second)
            v_tile = visited_tile(i - 1, last, second)
            next_tile = visited_tile(i + 1, last, second)
            with_keys = i < num_tiles
            with_values = i > 0
            if raw_ring is not None:  # noqa: SIM102  # the compiler knows it
                if with_values:
                    at, v_barrier = wait_for_stage(raw_ring, base - number + i)
                    mbarrier.expect(v_barrier, TILE_BYTES)
                    copy_heads(v_heads, raw_v, at, v_barrier, v_pages, v_tile, visible, PAGE_SIZE)
            stage, barrier = wait_for_stage(ring, base + i)
            if raw_ring is not None:
                mbarrier.expect(barrier, TILE_BYTES, pred=with_keys)
                mbarrier.arrive(barrier, count=1, pred=i == num_tiles)
            else:
                mbarrier.expect(barrier, 2 * TILE_BYTES, pred=with_keys & with_values)
                mbarrier.expect(barrier, TILE_BYTES, pred=with_keys ^ with_values)
            if with_keys:
                copy_heads(k_heads, k_smem, stage, barrier, pages, tile, visible, PAGE_SIZE)
            if raw_ring is None:  # noqa: SIM102
                if with_values:
                    copy_heads(v_heads, v_smem, stage, barrier, v_pages, v_tile, visible, PAGE_SIZE)
            v_pages = pages
            # Loaded while the next stage is not free yet.
            pages = load_pages(row_ptr, next_tile, visible, PAGE_SIZE, BOX, BOXES)
        base += visits
        ticket = next_ticket
        if ticket >= num_tickets:
            wait_for_stage(ring, base - 1 + STAGES)  # both warpgroups have finished all Q-Blocks
            ticket = ticket_to_repeat(repeats, repeated)
            repeated += 1
    send(mail, number, PromptBlock(0, 0, 0, 0, 0, 0, 0, 0, 0, 0))
    # The last program to draw a ticket leaves zeros for the next launch.
    if gl.atomic_add(counters_ptr + 1, 1) == gl.num_programs(0) - 1:
        gl.store(counters_ptr, 0)
        gl.store(counters_ptr + 1, 0)


@gluon.jit
def convert_chunk(raw, smem):
    """Convert [rows, columns] of shared memory; a thread reads 8 bytes and writes 16 at a time."""
    ROWS: gl.constexpr = min(4096 // smem.shape[1], smem.shape[0])
    THREADS: gl.constexpr = smem.shape[1] // UNIT
    layout: gl.constexpr = gl.BlockedLayout([1, UNIT], [32 // THREADS, THREADS], [4, 1], [1, 0])
    for part in gl.static_range(smem.shape[0] // ROWS):
        smem.slice(part * ROWS, ROWS).store(raw.slice(part * ROWS, ROWS).load(layout).to(smem.dtype))


@gluon.jit
def convert_values(raw_ring, ring, mail, window):
    """The warpgroup that converts fp8 values, tile after tile of one ring to the other's."""
    raw_v, raw_full, raw_empty = raw_ring
    v_smem = ring[1]
    RAW_STAGES: gl.constexpr = raw_full.shape[0]
    TILE_SIZE: gl.constexpr = v_smem[0].shape[1]
    block = receive_block(mail, 0)
    number = block.num_tiles * 0
    base = block.num_tiles * 0  # stages used for earlier Q-Blocks
    while block.num_tiles > 0:
        num_tiles = block.num_tiles - first_key(block, window) // TILE_SIZE
        stage, barrier = wait_for_stage(ring, base)  # of keys alone
        mbarrier.arrive(barrier, count=1)
        for i in range(1, num_tiles + 1):
            tile = base - number + i - 1  # one stage of each Q-Block has no values
            raw_stage = tile % RAW_STAGES
            mbarrier.wait(raw_full.index(raw_stage), (tile // RAW_STAGES) & 1)
            stage, barrier = wait_for_stage(ring, base + i)
            for chunk in gl.static_range(len(v_smem)):
                convert_chunk(raw_v[chunk].index(raw_stage), v_smem[chunk].index(stage))
            fence_async_shared()
            thread_barrier()  # all threads convert, one tells the others
            mbarrier.arrive(raw_empty.index(raw_stage), count=1)
            mbarrier.arrive(barrier, count=1)
        base += num_tiles + 1
        number += 1
        block = receive_block(mail, number)


@gluon.jit
def receive_block(mail, number):
    return PromptBlock(*receive(mail, number))
