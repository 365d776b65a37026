"""Step 4: parallel tiled softmax, section 4.5 and listing 5 of arXiv 2511.11581, and Flash-Decoding's split.

A decode of few sequences has few Q-Blocks, which leave most multiprocessors idle. So SEGMENTS programs
share the keys of a Q-Block. Each stores its softmax state as float32: sums [rows, SEGMENTS, padded], and
largest scores and totals [2, rows, SEGMENTS]. A second kernel joins them, a program for each token and head.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from examples.anatomy import step3_q_block
from examples.anatomy.common import Batch, find_q_block
from examples.anatomy.step3_q_block import attend_pages, load_rows

SEGMENTS = 16
MOST_Q_BLOCKS = 128  # times KV heads; as many programs fill a GPU without segments


@triton.jit(do_not_specialize=["num_seqs", "stride", "num_rows"])
def segment_kernel(
    q, k, v, sums, states, tables, lens, starts, num_seqs, stride, num_rows,
    shape: tl.constexpr, BLOCK_M: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    PADDED: tl.constexpr = shape.padded
    PAGE: tl.constexpr = shape.block_size
    BLOCK_Q: tl.constexpr = BLOCK_M // shape.group
    kv_head, segment = tl.program_id(1), tl.program_id(2)
    seq, block = find_q_block(starts, num_seqs, tl.program_id(0), BLOCK_Q)
    queries, row, exists, last, stop = load_rows(q, lens, starts, shape, seq, block, kv_head, BLOCK_M)
    keys = tl.cdiv(tl.cdiv(stop, SEGMENTS), PAGE) * PAGE  # of a segment; the last ones may have none
    start = segment * keys
    stop = tl.minimum(start + keys, stop)
    table = tables + seq * stride
    acc, largest, total = attend_pages(queries, last, k, v, table, kv_head, start, stop, shape)
    at = row * SEGMENTS + segment
    tl.store(sums + at[:, None] * PADDED + tl.arange(0, PADDED)[None, :], acc, mask=exists[:, None])
    tl.store(states + at, largest, mask=exists)
    tl.store(states + num_rows.to(tl.int64) * SEGMENTS + at, total, mask=exists)


@triton.jit(do_not_specialize=["num_rows"])
def reduce_kernel(out, sums, states, num_rows, shape: tl.constexpr, SEGMENTS: tl.constexpr):
    PADDED: tl.constexpr = shape.padded
    row = tl.program_id(0).to(tl.int64)
    columns, at = tl.arange(0, PADDED), row * SEGMENTS + tl.arange(0, SEGMENTS)
    largest = tl.load(states + at)
    weights = tl.exp2(largest - tl.max(largest, 0))
    total = tl.sum(tl.load(states + num_rows.to(tl.int64) * SEGMENTS + at) * weights, 0)
    acc = tl.sum(tl.load(sums + at[:, None] * PADDED + columns[None, :]) * weights[:, None], 0)
    at_out = out + row * shape.head_size + columns
    tl.store(at_out, (acc / total).to(out.dtype.element_ty), mask=columns < shape.head_size)


def attention(b: Batch) -> Tensor:
    shape, block_m, rows = b.shape, b.block_m(), b.q.shape[0] * b.q.shape[1]
    if max(b.host_query_lens) > 1 or len(b.seq_lens) * shape.num_kv_heads > MOST_Q_BLOCKS:
        return step3_q_block.attention(b)
    sums = torch.empty(rows, SEGMENTS, shape.padded, dtype=torch.float32, device=b.q.device)
    states = torch.empty(2, rows, SEGMENTS, dtype=torch.float32, device=b.q.device)
    q, k, v, out, *index = b.args
    grid = (b.num_q_blocks(block_m), shape.num_kv_heads, SEGMENTS)
    segment_kernel[grid](q, k, v, sums, states, *index, rows, shape, block_m, SEGMENTS)
    reduce_kernel[rows,](out, sums, states, rows, shape, SEGMENTS)
    return b.out
