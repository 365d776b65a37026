"""Step 5: tile sizes apart from page sizes, section 4.6 of arXiv 2511.11581.

A tile has TILE keys, whatever a page holds: each key of a tile looks up its own page. So tiles are as large
as the tensor cores and the pipeline of loads want them, and pages may be small or no power of two.
"""

import triton
import triton.language as tl
from torch import Tensor

from examples.anatomy.common import Batch, find_q_block
from examples.anatomy.step3_q_block import initial_state, load_rows, online_softmax, store_rows

TILE = 64


@triton.jit
def attend_tiles(queries, last, k, v, table, kv_head, start, stop, shape, TILE: tl.constexpr):
    """The softmax state of queries over keys `start` .. `stop` - 1, TILE keys a step."""
    PADDED: tl.constexpr = shape.padded
    PAGE: tl.constexpr = shape.block_size
    columns = tl.arange(0, PADDED)
    acc, largest, total = initial_state(queries.shape[0], shape)
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
    seq, block = find_q_block(starts, num_seqs, number, BLOCK_Q)
    queries, row, exists, last, stop = load_rows(q, lens, starts, shape, seq, block, kv_head, BLOCK_M)
    if stop > 0:
        table = tables + seq * stride
        acc, _, total = attend_tiles(queries, last, k, v, table, kv_head, 0, stop, shape, TILE)
        store_rows(out, row, exists, acc / total[:, None], shape)


@triton.jit(do_not_specialize=["num_seqs", "stride"])
def tile_kernel(
    q, k, v, out, tables, lens, starts, num_seqs, stride,
    shape: tl.constexpr, BLOCK_M: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    attend_q_block(
        q, k, v, out, tables, lens, starts, num_seqs, stride, tl.program_id(0), tl.program_id(1),
        shape, BLOCK_M, TILE,
    )  # fmt: skip


def attention(b: Batch) -> Tensor:
    block_m = b.block_m()
    tile_kernel[b.num_q_blocks(block_m), b.shape.num_kv_heads](*b.args, b.shape, block_m, TILE)
    return b.out
