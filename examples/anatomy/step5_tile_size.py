"""Step 5: tile sizes apart from page sizes, section 4.6 of arXiv 2511.11581.

A tile has TILE keys, whatever a page holds: each key of a tile looks up its own page. So tiles are as large as
the tensor cores and the pipeline of loads want them, and pages may be small or no power of two.
"""

import triton
import triton.language as tl
from torch import Tensor

from examples.anatomy.common import Batch, find_sequence
from examples.anatomy.step3_q_block import initial_state, load_q_block, online_softmax, store_q_block

TILE = 64


@triton.jit
def attend_tiles(
    queries, last, k, v, table, kv_head, start, stop, shape, BLOCK_M: tl.constexpr, TILE: tl.constexpr
):
    """The softmax state of queries over keys `start` .. `stop` - 1, TILE keys a step."""
    PADDED: tl.constexpr = shape.padded
    PAGE: tl.constexpr = shape.block_size
    columns = tl.arange(0, PADDED)
    acc, largest, total = initial_state(BLOCK_M, shape)
    for first in range(start, stop, TILE):
        key = first + tl.arange(0, TILE)
        exists = key < stop
        pages = tl.load(table + key // PAGE, mask=exists, other=0).to(tl.int64)
        slots = (pages * PAGE + key % PAGE) * shape.num_kv_heads + kv_head
        at = slots[:, None] * shape.head_size + columns[None, :]
        mask = exists[:, None] & (columns < shape.head_size)[None, :]
        keys = tl.load(k + at, mask=mask, other=0.0)
        values = tl.load(v + at, mask=mask, other=0.0)
        seen = exists[None, :] & (key[None, :] <= last[:, None])
        acc, largest, total = online_softmax(acc, largest, total, queries, keys, values, seen, shape.factor)
    return acc, largest, total


@triton.jit
def attend_q_block(
    q, k, v, out, tables, lens, starts, num_seqs, stride, number, kv_head,
    shape, BLOCK_M: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """The whole work of one program: Q-Block `number` of those that `starts` describes, and a KV head."""
    BLOCK_Q: tl.constexpr = BLOCK_M // shape.group
    seq = find_sequence(starts, num_seqs, number, BLOCK_Q)
    block = number - ((tl.load(starts + seq) - tl.load(starts)) // BLOCK_Q + seq)
    head = kv_head * shape.group
    queries, row, exists, last, num_keys = load_q_block(
        q, lens, starts, seq, block, head, shape.group, shape, BLOCK_M
    )
    if num_keys > 0:
        table = tables + seq * stride
        acc, _, total = attend_tiles(queries, last, k, v, table, kv_head, 0, num_keys, shape, BLOCK_M, TILE)
        store_q_block(out, row, exists, acc / total[:, None], shape)


@triton.jit(do_not_specialize=["num_seqs", "stride"])
def tile_kernel(
    q, k, v, out, tables, lens, starts, num_seqs, stride,
    shape: tl.constexpr, BLOCK_M: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    number, kv_head = tl.program_id(0), tl.program_id(1)
    attend_q_block(
        q, k, v, out, tables, lens, starts, num_seqs, stride, number, kv_head, shape, BLOCK_M, TILE
    )


def attention(b: Batch) -> Tensor:
    block_m = b.block_m(prompts=64)
    tile_kernel[b.num_q_blocks(block_m), b.shape.num_kv_heads](*b.args, b.shape, block_m, TILE)
    return b.out
