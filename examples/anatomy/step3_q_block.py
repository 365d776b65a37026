"""Step 3: Q-Blocks, section 4.4 and listing 4 of arXiv 2511.11581.

A program computes BLOCK_M rows: BLOCK_Q query tokens of one sequence times the heads that share a KV head.
It loads each key once for all of them, and both products are matrix products. A tile of keys is still one
page, so a page of 16 tokens gives products of BLOCK_M x head x 16.
"""

import triton
import triton.language as tl
from torch import Tensor

from examples.anatomy.common import Batch, find_q_block


@triton.jit
def load_rows(q, lens, starts, shape, seq, block, part, BLOCK_M: tl.constexpr, HEADS: tl.constexpr = 0):
    """Block number `block` of a sequence, for KV head `part`; or for HEADS query heads from part * HEADS on.

    Returns the queries [BLOCK_M, padded]; which row of q each is [BLOCK_M]; whether it exists [BLOCK_M]; the
    last key that it sees [BLOCK_M]; and where the block's keys stop, 0 if it lies behind the sequence.
    """
    PADDED: tl.constexpr = shape.padded
    GROUP: tl.constexpr = HEADS if HEADS > 0 else shape.group
    BLOCK_Q: tl.constexpr = BLOCK_M // GROUP
    rows, columns = tl.arange(0, BLOCK_M), tl.arange(0, PADDED)
    first = tl.load(starts + seq)
    query_len = tl.load(starts + seq + 1) - first
    seq_len = tl.load(lens + seq)
    query = block * BLOCK_Q + rows // GROUP
    exists = (rows < BLOCK_Q * GROUP) & (query < query_len)
    row = (first + query).to(tl.int64) * (shape.num_kv_heads * shape.group) + part * GROUP + rows % GROUP
    mask = exists[:, None] & (columns < shape.head_size)[None, :]
    queries = tl.load(q + row[:, None] * shape.head_size + columns[None, :], mask=mask, other=0.0)
    stop = tl.minimum(seq_len - query_len + (block + 1) * BLOCK_Q, seq_len)
    stop = tl.where(block * BLOCK_Q < query_len, stop, 0)
    return queries, row, exists, seq_len - query_len + query, stop


@triton.jit
def online_softmax(acc, largest, total, queries, keys, values, seen, factor):
    """Add a tile to the state: acc [BLOCK_M, padded], largest score and total of weights [BLOCK_M]."""
    scores = tl.where(seen, tl.dot(queries, tl.trans(keys)) * factor, float("-inf"))
    new = tl.maximum(largest, tl.max(scores, 1))
    weights = tl.exp2(scores - new[:, None])
    shrink = tl.exp2(largest - new)
    acc = tl.dot(weights.to(values.dtype), values, acc * shrink[:, None])
    return acc, new, total * shrink + tl.sum(weights, 1)


@triton.jit
def initial_state(BLOCK_M: tl.constexpr, shape):
    PADDED: tl.constexpr = shape.padded
    largest = tl.full([BLOCK_M], -1e38, dtype=tl.float32)  # finite: rows that see no key of a tile add zeros
    return tl.zeros([BLOCK_M, PADDED], dtype=tl.float32), largest, tl.zeros([BLOCK_M], dtype=tl.float32)


@triton.jit
def attend_pages(queries, last, k, v, table, kv_head, start, stop, shape):
    """The softmax state of queries over keys `start` .. `stop` - 1, one page a step, from a page on."""
    PADDED: tl.constexpr = shape.padded
    PAGE: tl.constexpr = shape.block_size
    TILE: tl.constexpr = triton.next_power_of_2(PAGE) if PAGE > 16 else 16
    slots, columns = tl.arange(0, TILE), tl.arange(0, PADDED)
    in_page = (slots * shape.num_kv_heads + kv_head)[:, None] * shape.head_size + columns[None, :]
    acc, largest, total = initial_state(queries.shape[0], shape)
    for first in range(start, stop, PAGE):
        page = tl.load(table + first // PAGE).to(tl.int64)
        exists = (slots < PAGE) & (first + slots < stop)
        at = page * (PAGE * shape.num_kv_heads * shape.head_size) + in_page
        mask = exists[:, None] & (columns < shape.head_size)[None, :]
        keys = tl.load(k + at, mask=mask, other=0.0)
        values = tl.load(v + at, mask=mask, other=0.0)
        seen = exists[None, :] & (first + slots[None, :] <= last[:, None])
        acc, largest, total = online_softmax(acc, largest, total, queries, keys, values, seen, shape.factor)
    return acc, largest, total


@triton.jit
def store_rows(out, row, exists, values, shape):
    PADDED: tl.constexpr = shape.padded
    columns = tl.arange(0, PADDED)
    mask = exists[:, None] & (columns < shape.head_size)[None, :]
    at = row[:, None] * shape.head_size + columns[None, :]
    tl.store(out + at, values.to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_seqs", "stride"])
def q_block_kernel(
    q, k, v, out, tables, lens, starts, num_seqs, stride, shape: tl.constexpr, BLOCK_M: tl.constexpr
):
    BLOCK_Q: tl.constexpr = BLOCK_M // shape.group
    kv_head = tl.program_id(1)
    seq, block = find_q_block(starts, num_seqs, tl.program_id(0), BLOCK_Q)
    queries, row, exists, last, stop = load_rows(q, lens, starts, shape, seq, block, kv_head, BLOCK_M)
    if stop > 0:
        acc, _, total = attend_pages(queries, last, k, v, tables + seq * stride, kv_head, 0, stop, shape)
        store_rows(out, row, exists, acc / total[:, None], shape)


def attention(b: Batch) -> Tensor:
    block_m = b.block_m()
    q_block_kernel[b.num_q_blocks(block_m), b.shape.num_kv_heads](*b.args, b.shape, block_m)
    return b.out
