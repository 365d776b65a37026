"""Step 9: prefill and decode fused in one launch, POD-Attention (arXiv 2410.18038) in plain Triton.

Prompts wait for tensor cores and decodes for memory, so both should run on each multiprocessor at a time. A
program does not know its part when it is launched: it reads its multiprocessor's number (%smid), draws a
ticket there, and turns to a prompt or a decode in proportion to how many of each there are. Then it draws
that part's next item, a Q-Block or a segment of a decode; where the part is done, one of the other. Triton
has no decodes of single warps with a share of a block's shared memory, and both parts have the registers of
the larger. In the interpreter, all programs draw the tickets of one multiprocessor.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from examples.anatomy import step5_tile_size
from examples.anatomy.common import Batch
from examples.anatomy.step5_tile_size import attend_q_block
from examples.anatomy.step7_static_grid import multiprocessors
from examples.anatomy.step8_tuned import COUNTERS, MOST_SEGMENTS, attend_segment, counters_of, segment_scratch

PROMPT_M, DECODE_M, TILE = 64, 16, 64
MOST_SMS = 1024


@triton.jit(do_not_specialize=["num_seqs", "stride", "num_decodes", "prompts", "decodes", "segments"])
def pod_kernel(
    q, k, v, out, tables, lens, starts, num_seqs, stride, sums, counters, tickets,
    num_decodes, prompts, decodes, segments, shape: tl.constexpr,
    PROMPT_M: tl.constexpr, DECODE_M: tl.constexpr, TILE: tl.constexpr, ON_GPU: tl.constexpr,
):  # fmt: skip
    """`prompts` and `decodes` are how many programs each part needs; tickets: int32 zeros [2 + MOST_SMS]."""
    processor = 0
    if ON_GPU:
        processor = tl.inline_asm_elementwise(
            "mov.u32 $0, %smid;", "=r", [], dtype=tl.int32, is_pure=True, pack=1
        )
    ticket = tl.atomic_add(tickets + 2 + processor, 1)
    # Of each cycle of tickets, one goes to the smaller part.
    cycle = 1 + tl.maximum(prompts, decodes) // tl.maximum(tl.minimum(prompts, decodes), 1)
    is_prompt = (ticket % cycle == 0) == (prompts <= decodes)
    item = tl.atomic_add(tickets + tl.where(is_prompt, 0, 1), 1)
    if item >= tl.where(is_prompt, prompts, decodes):  # that part is done
        is_prompt = is_prompt == 0
        item = tl.atomic_add(tickets + tl.where(is_prompt, 0, 1), 1)
    if is_prompt:
        attend_q_block(
            q, k, v, out, tables + num_decodes * stride, lens + num_decodes, starts + num_decodes,
            num_seqs - num_decodes, stride, item // shape.num_kv_heads, item % shape.num_kv_heads,
            shape, PROMPT_M, TILE,
        )  # fmt: skip
    else:
        pair = item // segments
        attend_segment(
            q, k, v, out, tables, lens, starts, stride, sums, counters,
            pair // shape.num_kv_heads, 0, pair % shape.num_kv_heads, item % segments, segments, pair,
            shape, DECODE_M, TILE,
        )  # fmt: skip


def attention(b: Batch) -> Tensor:
    shape, device, num_seqs = b.shape, b.q.device, len(b.seq_lens)
    others = (seq for seq, query_len in enumerate(b.host_query_lens) if query_len != 1)
    num_decodes = next(others, num_seqs)  # those at the front, where schedulers sort them
    pairs, num_prompts = num_decodes * shape.num_kv_heads, num_seqs - num_decodes
    if not pairs or not num_prompts or pairs > COUNTERS:
        return step5_tile_size.attention(b)  # nothing to fuse
    prompt_m = max(PROMPT_M, triton.next_power_of_2(shape.group))
    blocks = (b.q.shape[0] - num_decodes) // (prompt_m // shape.group) + num_prompts
    prompts = blocks * shape.num_kv_heads
    # As many segments as give each multiprocessor two decodes.
    segments = min(MOST_SEGMENTS, triton.cdiv(2 * multiprocessors(device), pairs))
    tickets = torch.zeros(2 + MOST_SMS, dtype=torch.int32, device=device)
    sums = segment_scratch(b, segments)
    pod_kernel[prompts + pairs * segments,](
        *b.args, sums, counters_of(device), tickets, num_decodes, prompts, pairs * segments, segments, shape,
        prompt_m, max(DECODE_M, triton.next_power_of_2(shape.group)), TILE, device.type == "cuda",
    )  # fmt: skip
    return b.out
