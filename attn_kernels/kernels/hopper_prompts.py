"""The prompts' role of the Hopper kernel: two computing warpgroups and a copying warp.

The programs share the Q-Blocks of ``schedule``, longest first. A Q-Block's 128 rows are consecutive query
tokens of one sequence times the query heads that share one KV head; a warpgroup computes 64 of them. The
copying warp takes a ticket, which is the number of a Q-Block and KV head. It sends what the warpgroups must
know of it, and copies keys and values through TMA into a ring in shared memory. It begins the next Q-Block
while the warpgroups finish the last. A warpgroup multiplies the values of a tile while it computes the
softmax of the next (FlashAttention-3, arXiv 2407.08608, section 3.2). The tiles run from the last, which
holds the diagonal, to the first.
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

from attn_kernels.kernels import schedule
from attn_kernels.kernels.hopper_device import (
    GROUP_ROWS,
    UNIT,
    copy_tile,
    load_pages,
    mask_scores,
    receive,
    rescale_in_place,
    rescale_rows,
    round_weights,
    row_offsets,
    send,
    softmax_step,
    sum_thread,
    zero_rows,
)

BLOCK_M = gl.constexpr(schedule.BLOCK_M)


class PromptBlock(NamedTuple):
    """A Q-Block of a prompt; the fields of a message."""

    kv_head: Any
    first_token: Any  # within the batch
    num_queries: Any  # query tokens
    first_limit: Any  # the last key that its first query sees
    num_keys: Any  # of the sequence
    num_tiles: Any  # that its last query sees; 0 in the last message


PROMPT_FIELDS = gl.constexpr(len(PromptBlock._fields))


@gluon.jit
def load_q_block(batch, ticket, HEADS: gl.constexpr, TILE_SIZE: gl.constexpr):
    """The PromptBlock of a ticket, and its sequence."""
    BLOCK_Q: gl.constexpr = BLOCK_M // HEADS
    q_blocks_ptr, _, num_kv_heads, cu_seqlens_q_ptr, seqused_k_ptr = batch
    seq = gl.load(q_blocks_ptr + 2 * (ticket // num_kv_heads))
    first_query = gl.load(q_blocks_ptr + 2 * (ticket // num_kv_heads) + 1)
    seq_start = gl.load(cu_seqlens_q_ptr + seq)
    query_len = gl.load(cu_seqlens_q_ptr + seq + 1) - seq_start
    num_keys = gl.load(seqused_k_ptr + seq)
    num_queries = gl.minimum(query_len - first_query, BLOCK_Q)
    first_limit = num_keys - query_len + first_query
    num_tiles = (first_limit + num_queries - 1) // TILE_SIZE + 1
    first_token = seq_start + first_query
    return PromptBlock(ticket % num_kv_heads, first_token, num_queries, first_limit, num_keys, num_tiles), seq


@gluon.jit
def wait_for_stage(ring, index):
    """Wait until the ring's stage for tile number ``index`` is free; return the stage and its barrier."""
    k_smem, _, full, empty = ring
    STAGES: gl.constexpr = k_smem.shape[0]
    mbarrier.wait(empty.index(index % STAGES), (index // STAGES) & 1 ^ 1)
    return index % STAGES, full.index(index % STAGES)


@gluon.jit
def produce_prompts(caches, ring, mail, counters_ptr, batch, HEADS: gl.constexpr, PAGE_SIZE: gl.constexpr):
    """The copying warp. A stage holds the keys of one tile and the values of the tile before.

    The warpgroups multiply both at the same time, so one barrier announces them and one frees them.
    """
    k_desc, v_desc, _k_tail_desc, _v_tail_desc, k_steps, v_steps, block_table_ptr, stride_table = caches
    k_smem = ring[0]
    v_smem = ring[1]
    TILE_SIZE: gl.constexpr = k_smem.shape[1]
    BOX: gl.constexpr = k_desc.block_shape[0]
    BOXES: gl.constexpr = TILE_SIZE // BOX
    TILE_BYTES: gl.constexpr = TILE_SIZE * k_smem.shape[2] * 2
    k_page_rows, k_head_rows, k_head_columns = k_steps
    v_page_rows, v_head_rows, v_head_columns = v_steps
    num_tickets = gl.load(batch[1]) * batch[2]
    ticket = gl.atomic_add(counters_ptr, 1)
    number = ticket * 0
    base = ticket * 0  # stages used for earlier Q-Blocks
    while ticket < num_tickets:
        next_ticket = gl.atomic_add(counters_ptr, 1)
        block, seq = load_q_block(batch, ticket, HEADS, TILE_SIZE)
        send(mail, number, block)
        num_tiles = block.num_tiles
        row_ptr = block_table_ptr + seq.to(gl.int64) * stride_table
        k_place = (k_page_rows, block.kv_head * k_head_rows, block.kv_head * k_head_columns)
        v_place = (v_page_rows, block.kv_head * v_head_rows, block.kv_head * v_head_columns)
        last_box = (block.first_limit + block.num_queries - 1) // BOX
        tile = num_tiles - 1
        pages = load_pages(row_ptr, tile, last_box, PAGE_SIZE, BOX, BOXES)
        stage, barrier = wait_for_stage(ring, base)
        mbarrier.expect(barrier, TILE_BYTES)
        copy_tile(k_desc, k_smem, stage, barrier, pages, tile, last_box, k_place, PAGE_SIZE, BOX)
        for i in range(1, num_tiles):
            tile = num_tiles - 1 - i
            next_pages = load_pages(row_ptr, tile, last_box, PAGE_SIZE, BOX, BOXES)
            stage, barrier = wait_for_stage(ring, base + i)
            mbarrier.expect(barrier, 2 * TILE_BYTES)
            copy_tile(k_desc, k_smem, stage, barrier, next_pages, tile, last_box, k_place, PAGE_SIZE, BOX)
            copy_tile(v_desc, v_smem, stage, barrier, pages, tile + 1, last_box, v_place, PAGE_SIZE, BOX)
            pages = next_pages
        stage, barrier = wait_for_stage(ring, base + num_tiles)
        mbarrier.expect(barrier, TILE_BYTES)
        copy_tile(v_desc, v_smem, stage, barrier, pages, 0, last_box, v_place, PAGE_SIZE, BOX)
        base += num_tiles + 1
        number += 1
        ticket = next_ticket
    send(mail, number, PromptBlock(0, 0, 0, 0, 0, 0))
    # The last program to draw a ticket leaves zeros for the next launch.
    if gl.atomic_add(counters_ptr + 1, 1) == gl.num_programs(0) - 1:
        gl.store(counters_ptr, 0)
        gl.store(counters_ptr + 1, 0)


@gluon.jit
def consume_prompts(GROUP: gl.constexpr, rows, q_smem, ring, mail, HEADS: gl.constexpr):
    """A computing warpgroup, which computes 64 rows of each Q-Block."""
    q_ptr, out_ptr, strides, scoring = rows
    scale_log2 = scoring.factor
    stride_q_token, stride_q_head, stride_out_token, stride_out_head = strides
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

    kv_head, first_token, num_queries, first_limit, num_keys, num_tiles = receive(mail, 0)
    number = num_tiles * 0
    base = num_tiles * 0  # stages used for earlier Q-Blocks
    while num_tiles > 0:
        first_head = kv_head * HEADS
        first_row = first_token.to(gl.int64)
        io_mask = (io_rows < num_queries * HEADS)[:, None]
        q_offsets = row_offsets(io_rows, stride_q_token, stride_q_head, HEADS)[:, None]
        q_block_ptr = q_ptr + (first_row * stride_q_token + first_head * stride_q_head) * UNIT
        q_smem.store(gl.load(q_block_ptr + (q_offsets + columns), mask=io_mask, other=0.0))
        fence_async_shared()

        row_limit = first_limit + (GROUP * GROUP_ROWS + gl.arange(0, GROUP_ROWS, row_layout)) // HEADS
        start = (num_tiles - 1) * TILE_SIZE
        num_masked = num_tiles - (first_limit + 1) // TILE_SIZE
        acc = gl.zeros([GROUP_ROWS, HEAD_SIZE], gl.float32, acc_layout)
        no_scores = gl.zeros([GROUP_ROWS, TILE_SIZE], gl.float32, score_layout)
        # Finite, so that the weights of rows that see nothing of the first tile are 2**-inf = 0.
        row_max = gl.full([GROUP_ROWS], -1e30, gl.float32, row_layout)

        stage = base % STAGES
        mbarrier.wait(full.index(stage), (base // STAGES) & 1)
        k_tile = k_smem.index(stage).permute([1, 0])
        scores = warpgroup_mma(q_smem, k_tile, no_scores, use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(0, [scores])
        mbarrier.arrive(empty.index(stage), count=1)
        weights, rescale, row_max = softmax_step(mask_scores(scores, row_limit, start), row_max, scale_log2)
        row_sum = sum_thread(weights)
        p = round_weights(weights, dtype, weight_layout)
        stage = (base + 1) % STAGES
        mbarrier.wait(full.index(stage), ((base + 1) // STAGES) & 1)
        if start + TILE_SIZE > num_keys:
            zero_rows(v_smem, stage, num_keys - start)

        for i in range(1, num_tiles):
            stage = (base + i) % STAGES
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
            mbarrier.wait(full.index((base + i + 1) % STAGES), ((base + i + 1) // STAGES) & 1)
            acc = warpgroup_mma_wait(0, [acc])
            mbarrier.arrive(empty.index(stage), count=1)
            p = next_p

        stage = (base + num_tiles) % STAGES
        acc = warpgroup_mma(p, v_smem.index(stage), rescale_rows(acc, rescale), is_async=True)
        factor = 1.0 / gl.sum(row_sum, 1)
        acc = warpgroup_mma_wait(0, [acc])
        mbarrier.arrive(empty.index(stage), count=1)
        q_smem.store(rescale_rows(acc, factor).to(dtype))
        out_offsets = row_offsets(io_rows, stride_out_token, stride_out_head, HEADS)[:, None]
        out_block_ptr = out_ptr + (first_row * stride_out_token + first_head * stride_out_head) * UNIT
        gl.store(out_block_ptr + (out_offsets + columns), q_smem.load(io_layout), mask=io_mask)
        base += num_tiles + 1
        number += 1
        kv_head, first_token, num_queries, first_limit, num_keys, num_tiles = receive(mail, number)
