"""Join the splits that the Hopper kernel writes of prompts; programs find them in the schedule.

``splits.reduce_kernel`` has a program for every query token and head, and with 4,096 tokens, most of them
unsplit, these took longer than splits save.
"""

from collections.abc import Sequence

import triton
import triton.language as tl

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, OfLayer, OfPlan, Plan
from attn_kernels.kernels.arguments import (
    JIT_OPTIONS,
    NUM_SPLITS,
    VECTOR_BYTES,
    head_padded,
    lse_arguments,
)
from attn_kernels.kernels.hopper_limits import roles_of
from attn_kernels.kernels.query_tile import in_base_2, in_base_e
from attn_kernels.kernels.schedule import BLOCK_M
from attn_kernels.kernels.splits import join_states, tiles_per_split

ROWS = 16  # of a program
OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}


@triton.jit(**JIT_OPTIONS)
def join_prompts_kernel(
    out_ptr, partial_ptr, max_ptr, sum_ptr, schedule_ptr, sinks_ptr, lse_ptr, ahead, num_splits, num_kv_heads,
    stride_out_token, stride_out_head, stride_lse, HEADS: tl.constexpr, HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr, TILE_SIZE: tl.constexpr, ROWS: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """Join the splits of some rows of a Q-Block; the tensors are those of ``splits.store_partial``."""
    if tl.program_id(0) >= tl.load(schedule_ptr + 5):  # as many Q-Blocks may have several splits
        return
    entry_ptr = schedule_ptr + 6 + 5 * tl.program_id(0)
    first_token = tl.load(entry_ptr + 1)
    num_queries = tl.load(entry_ptr + 2)
    last = tl.load(entry_ptr + 3) + num_queries - 1
    if ahead is not None:
        last = tl.minimum(last + ahead, tl.load(entry_ptr + 4) - 1)
    tiles = tl.maximum(last, 0) // TILE_SIZE + 1
    each = tiles_per_split(tiles, tl.load(schedule_ptr + 3), num_splits, TILE_SIZE)
    rows = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    if (each >= tiles) | (tl.program_id(2) * ROWS >= num_queries * HEADS):
        return
    exists = rows < num_queries * HEADS
    tokens = first_token + rows // HEADS
    heads = tl.program_id(1) * HEADS + rows % HEADS
    places = (tokens * (num_kv_heads * HEADS) + heads) * num_splits
    columns = tl.arange(0, HEAD_PADDED)
    largest = tl.full([ROWS], -1e30, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    if sinks_ptr is not None:
        largest = in_base_2(tl.load(sinks_ptr + heads, mask=exists, other=0.0))
        total += 1.0
    result = tl.zeros([ROWS, HEAD_PADDED], tl.float32)
    for split in range(tl.cdiv(tiles, each)):
        row_max = tl.load(max_ptr + places + split, mask=exists, other=-1e30)
        row_sum = tl.load(sum_ptr + places + split, mask=exists, other=0.0)
        partial_ptrs = partial_ptr + ((places + split) * HEAD_PADDED)[:, None] + columns[None, :]
        partials = tl.load(partial_ptrs, mask=exists[:, None], other=0.0)
        result, largest, total = join_states(result, largest, total, partials, row_max, row_sum)
    result *= tl.where(total > 0.0, 1.0 / total, 0.0)[:, None]
    out_places = (tokens.to(tl.int64) * stride_out_token + heads.to(tl.int64) * stride_out_head) * UNIT
    mask = exists[:, None] & (columns < HEAD_SIZE)[None, :]
    tl.store(out_ptr + out_places[:, None] + columns[None, :], result.to(out_ptr.dtype.element_ty), mask=mask)
    if lse_ptr is not None:
        logarithms = in_base_e(largest + tl.log2(total))
        tl.store(lse_ptr + heads.to(tl.int64) * stride_lse + tokens, logarithms, mask=exists)


def constants(config: Config, head_size: int, heads: int) -> dict[str, int]:
    return {
        "HEADS": heads,
        "HEAD_SIZE": head_size,
        "HEAD_PADDED": head_padded(head_size),
        "TILE_SIZE": config.tile_size,
        "ROWS": ROWS,
        "UNIT": VECTOR_BYTES // 2,
    }


def bind_joins(plan: Plan, layer: Layer, partials: Sequence[OfPlan], schedule: OfPlan) -> Launch:
    """The launch that joins what the Hopper kernel wrote to ``partials`` by a ``schedule``."""
    model = plan.model
    chosen = constants(plan.config, model.head_size, model.gqa_group_size)
    lse, lse_stride = lse_arguments(layer)
    arguments = (
        OfLayer("out"),
        *partials,
        schedule,
        None if layer.sinks is None else OfLayer("sinks"),
        lse,
        layer.ahead,
        NUM_SPLITS,
        model.num_kv_heads,
        *(stride // chosen["UNIT"] for stride in layer.out.stride()[:2]),
        lse_stride,
        *chosen.values(),
    )
    roles = roles_of(plan.config, model.gqa_group_size)

    def programs(plan: Plan) -> tuple[int, int, int]:
        q_blocks = roles.max_q_blocks(plan.lengths.num_query_tokens, plan.lengths.num_seqs)
        return q_blocks, model.num_kv_heads, BLOCK_M // ROWS

    return Launch(join_prompts_kernel, programs, arguments, OPTIONS, lambda plan: plan.num_splits > 1)
