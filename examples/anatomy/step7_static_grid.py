"""Step 7: a static launch grid, sections 4.7 and 6.2 of arXiv 2511.11581.

A captured CUDA graph replays one grid for every batch, so a grid for the largest batch launches programs that
find no work. Here a launch has a few programs for each multiprocessor, which compute Q-Blocks one after
another; how many there are, they read from query_start_loc. It costs registers for the loop. With few
sequences it costs most: step 4's segments would need one more dimension of the grid, so GPUs stay idle.
"""

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from examples.anatomy.common import Batch
from examples.anatomy.step5_tile_size import TILE, attend_q_block

PROGRAMS = 4  # a multiprocessor


@cache
def multiprocessors(device: torch.device) -> int:
    """Of a GPU; 4 stand for the interpreter's."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


@triton.jit(do_not_specialize=["num_seqs", "stride"])
def static_grid_kernel(
    q, k, v, out, tables, lens, starts, num_seqs, stride,
    shape: tl.constexpr, BLOCK_M: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    BLOCK_Q: tl.constexpr = BLOCK_M // shape.group
    num_q_blocks = tl.load(starts + num_seqs) // BLOCK_Q + num_seqs
    for item in range(tl.program_id(0), num_q_blocks * shape.num_kv_heads, tl.num_programs(0)):
        number, kv_head = item // shape.num_kv_heads, item % shape.num_kv_heads
        attend_q_block(
            q, k, v, out, tables, lens, starts, num_seqs, stride, number, kv_head, shape, BLOCK_M, TILE
        )


def attention(b: Batch) -> Tensor:
    programs = PROGRAMS * multiprocessors(b.q.device)
    static_grid_kernel[programs,](*b.args, b.shape, b.block_m(), TILE)
    return b.out
