"""Step 6: prefix prefill beside a paged decode, the split of vLLM V0 ("Enabling vLLM V1 on AMD GPUs With Triton").

The older design, for comparison. One kernel computes prompts: BLOCK_M query tokens of one query head, so that
the heads of a group load the same keys again; V0's read new keys from k and v, and only the prefix from pages.
Another computes decodes: the heads of a group for one token, one page a step. Each launch has programs
for all sequences, and those of the other kind end at once; the launches run one after the other.
"""

import triton
import triton.language as tl
from torch import Tensor

from examples.anatomy.common import Batch
from examples.anatomy.step3_q_block import attend_pages, load_q_block, store_q_block
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
        queries, row, exists, last, num_keys = load_q_block(
            q, lens, starts, seq, block, head, 1, shape, BLOCK_M
        )
        table, kv_head = tables + seq * stride, head // shape.group
        acc, _, total = attend_tiles(queries, last, k, v, table, kv_head, 0, num_keys, shape, BLOCK_M, TILE)
        store_q_block(out, row, exists, acc / total[:, None], shape)


@triton.jit(do_not_specialize=["num_seqs", "stride"])
def paged_decode_kernel(
    q, k, v, out, tables, lens, starts, num_seqs, stride, shape: tl.constexpr, BLOCK_M: tl.constexpr
):
    seq, kv_head = tl.program_id(0), tl.program_id(1)
    if tl.load(starts + seq + 1) - tl.load(starts + seq) == 1:
        head = kv_head * shape.group
        queries, row, exists, last, num_keys = load_q_block(
            q, lens, starts, seq, 0, head, shape.group, shape, BLOCK_M
        )
        table = tables + seq * stride
        acc, _, total = attend_pages(queries, last, k, v, table, kv_head, 0, num_keys, shape, BLOCK_M)
        store_q_block(out, row, exists, acc / total[:, None], shape)


def attention(b: Batch) -> Tensor:
    shape, num_seqs, longest = b.shape, len(b.seq_lens), max(b.host_query_lens)
    if longest > 1:
        grid = (num_seqs, b.q.shape[1], triton.cdiv(longest, BLOCK_M))
        prefix_prefill_kernel[grid](*b.args, shape, BLOCK_M, TILE)
    if 1 in b.host_query_lens:
        block_m = max(16, triton.next_power_of_2(shape.group))
        paged_decode_kernel[num_seqs, shape.num_kv_heads](*b.args, shape, block_m)
    return b.out
