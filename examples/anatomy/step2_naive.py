"""Step 2: the naive Triton kernel, listing 3 of "The Anatomy of a Triton Attention Kernel", arXiv 2511.11581.

A program computes one query token and one query head. It walks the pages of its sequence, one page a step,
and keeps a running maximum and sum (online softmax), so that no score reaches memory. It multiplies a vector
with a matrix, which no tensor core does, and every head of a group loads the same keys again.
"""

import triton
import triton.language as tl
from torch import Tensor

from examples.anatomy.common import Batch, find_q_block


@triton.jit(do_not_specialize=["num_seqs", "stride"])
def naive_kernel(q, k, v, out, tables, lens, starts, num_seqs, stride, shape: tl.constexpr):
    HEADS: tl.constexpr = shape.num_kv_heads
    GROUP: tl.constexpr = shape.group
    SIZE: tl.constexpr = shape.head_size
    PADDED: tl.constexpr = shape.padded
    PAGE: tl.constexpr = shape.block_size
    TILE: tl.constexpr = triton.next_power_of_2(PAGE)
    token, head = tl.program_id(0), tl.program_id(1)
    seq, _ = find_q_block(starts, num_seqs, token, 0)
    # The last key that this token sees.
    last = tl.load(lens + seq) - tl.load(starts + seq + 1) + token
    columns = tl.arange(0, PADDED)
    row = (token.to(tl.int64) * HEADS * GROUP + head) * SIZE + columns
    queries = tl.load(q + row, mask=columns < SIZE, other=0.0).to(tl.float32)
    slots = tl.arange(0, TILE)
    in_page = (slots * HEADS + head // GROUP)[:, None] * SIZE + columns[None, :]
    largest, total = -1e38, 0.0
    acc = tl.zeros([PADDED], dtype=tl.float32)
    for start in range(0, last + 1, PAGE):
        page = tl.load(tables + seq * stride + start // PAGE).to(tl.int64)
        seen = (slots < PAGE) & (start + slots <= last)
        at = page * (PAGE * HEADS * SIZE) + in_page
        mask = seen[:, None] & (columns < SIZE)[None, :]
        keys = tl.load(k + at, mask=mask, other=0.0)
        scores = tl.sum(queries[None, :] * keys, 1) * shape.factor
        scores = tl.where(seen, scores, float("-inf"))
        # Online softmax: what is summed so far shrinks where a larger score appears.
        new = tl.maximum(largest, tl.max(scores, 0))
        weights = tl.exp2(scores - new)
        shrink = tl.exp2(largest - new)
        values = tl.load(v + at, mask=mask, other=0.0)
        acc = acc * shrink + tl.sum(weights[:, None] * values, 0)
        total = total * shrink + tl.sum(weights, 0)
        largest = new
    tl.store(out + row, (acc / total).to(out.dtype.element_ty), mask=columns < SIZE)


def attention(b: Batch) -> Tensor:
    naive_kernel[b.q.shape[:2]](*b.args, b.shape)
    return b.out
