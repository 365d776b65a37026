"""Step 6: prefix prefill beside a paged decode, as vLLM V0 split a batch.

The older design, for comparison ("Enabling vLLM V1 on AMD GPUs With Triton"). One kernel computes prompts:
BLOCK_M query tokens of one query head, so the heads of a group load the same keys again. All keys come from
pages; V0 read those of new tokens from its arguments. Another kernel computes decodes: the heads of a group
for one token, a page a step. Each has programs for all sequences, of which the other kind's end at once.
"""

import triton
import triton.language as tl
from torch import Tensor

from examples.anatomy.common import Batch
from examples.anatomy.step3_q_block import attend_pages, load_rows, store_rows
from examples.anatomy.step5_tile_size import attend_tiles

BLOCK_M, TILE = 64, 64


@triton.jit(do_not_specialize=["num_seqs", "stride"])
def prefix_prefill_kernel(
    q, k, v, out, tables, lens, starts, num_seqs, stride,
    shape: tl.constexpr, BLOCK_M: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    seq, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    query_len = tl.load(starts + seq + 1) - tl.load(starts + seq)
    if query_len > 1 and block * BLOCK_M < query_len:
        queries, row, exists, last, stop = load_rows(q, lens, starts, shape, seq, block, head, BLOCK_M, 1)
        table, kv_head = tables + seq * stride, head // shape.group
        acc, _, total = attend_tiles(queries, last, k, v, table, kv_head, 0, stop, shape, TILE)
        store_rows(out, row, exists, acc / total[:, None], shape)


@triton.jit(do_not_specialize=["num_seqs", "stride"])
def paged_decode_kernel(
    q, k, v, out, tables, lens, starts, num_seqs, stride, shape: tl.constexpr, BLOCK_M: tl.constexpr
):
    seq, kv_head = tl.program_id(0), tl.program_id(1)
    if tl.load(starts + seq + 1) - tl.load(starts + seq) == 1:
        queries, row, exists, last, stop = load_rows(q, lens, starts, shape, seq, 0, kv_head, BLOCK_M)
        acc, _, total = attend_pages(queries, last, k, v, tables + seq * stride, kv_head, 0, stop, shape)
        store_rows(out, row, exists, acc / total[:, None], shape)


def attention(b: Batch) -> Tensor:
    shape, num_seqs, longest = b.shape, len(b.seq_lens), max(b.host_query_lens)
    if longest > 1:
        grid = (num_seqs, b.q.shape[1], triton.cdiv(longest, BLOCK_M))
        prefix_prefill_kernel[grid](*b.args, shape, BLOCK_M, TILE)
    if 1 in b.host_query_lens:
        block_m = max(16, triton.next_power_of_2(shape.group))
        paged_decode_kernel[num_seqs, shape.num_kv_heads](*b.args, shape, block_m)
    return b.out
