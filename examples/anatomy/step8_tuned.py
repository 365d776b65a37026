"""Step 8: configs by an exported if-else module, as arXiv 2511.11581 exports its autotuner's results.

An autotuner would time configs whenever new lengths arrive. Here `triton-tune` times them once, and the
module that `treegen build` writes from the table chooses at each launch. A config names the step as well:
SEGMENTS = 1 is step 5, and more are step 4 with step 5's tiles. So that the tuner times all of it, the
program that finishes last joins a Q-Block's segments, in place of a second kernel.
"""

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from examples.anatomy.common import Batch, find_q_block
from examples.anatomy.step3_q_block import initial_state, load_rows, store_rows
from examples.anatomy.step5_tile_size import attend_tiles
from triton_tune import tuned

MOST_SEGMENTS = 16
MOST_TOKENS = 512  # of a batch with segments, which bounds the memory of partial results
COUNTERS = 1 << 16
CONFIGS = [
    *((16, tile, segments, 4, 3) for tile in (32, 64, 128) for segments in (1, 2, 4, 8, 16)),
    *((64, tile, segments, 4, stages) for tile in (32, 64) for stages in (2, 3) for segments in (1, 4)),
    *((128, tile, 1, 8, stages) for tile in (32, 64, 128) for stages in (2, 3)),
]


@triton.jit
def attend_segment(
    q, k, v, out, tables, lens, starts, stride, sums, counters, seq, block, kv_head, segment, segments, slot,
    shape, BLOCK_M: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One of `segments` parts of a Q-Block's keys; the last of its programs to arrive writes the result.

    sums: float32 [rows, segments, padded + 2], each an acc, a largest score and a total. counters: int32,
    zeros before and after; the Q-Block uses number `slot`.
    """
    PADDED: tl.constexpr = shape.padded
    columns = tl.arange(0, PADDED)[None, :]
    queries, row, exists, last, stop = load_rows(q, lens, starts, shape, seq, block, kv_head, BLOCK_M)
    if stop > 0:
        keys = tl.cdiv(tl.cdiv(stop, segments), TILE) * TILE
        first, table = segment * keys, tables + seq * stride
        end = tl.minimum(first + keys, stop)
        acc, largest, total = attend_tiles(queries, last, k, v, table, kv_head, first, end, shape, TILE)
        arrived = 0
        if segments > 1:
            own = sums + (row * segments + segment) * (PADDED + 2)
            tl.store(own[:, None] + columns, acc, mask=exists[:, None])
            tl.store(own + PADDED, largest, mask=exists)
            tl.store(own + PADDED + 1, total, mask=exists)
            tl.debug_barrier()  # all threads have stored before one of them counts
            arrived = tl.atomic_add(counters + slot, 1, sem="acq_rel")
        if arrived == segments - 1:
            if segments > 1:
                acc, largest, total = initial_state(BLOCK_M, shape)
                for number in range(segments):
                    part = sums + (row * segments + number) * (PADDED + 2)
                    theirs = tl.load(part + PADDED, mask=exists, other=-1e38, cache_modifier=".cg")
                    new = tl.maximum(largest, theirs)
                    before, after = tl.exp2(largest - new), tl.exp2(theirs - new)
                    sum_of = tl.load(
                        part[:, None] + columns, mask=exists[:, None], other=0.0, cache_modifier=".cg"
                    )
                    acc = acc * before[:, None] + sum_of * after[:, None]
                    theirs = tl.load(part + PADDED + 1, mask=exists, other=0.0, cache_modifier=".cg")
                    total = total * before + theirs * after
                    largest = new
                tl.store(counters + slot, 0)
            store_rows(out, row, exists, acc / total[:, None], shape)


@triton.autotune(
    [
        triton.Config({"BLOCK_M": m, "TILE": tile, "SEGMENTS": n}, num_warps=warps, num_stages=stages)
        for m, tile, n, warps, stages in CONFIGS
    ],
    key=["num_seqs", "max_query_len", "max_seq_len"],
)
@triton.jit(do_not_specialize=["num_seqs", "stride", "most", "max_query_len", "max_seq_len"])
def tuned_kernel(
    q, k, v, out, tables, lens, starts, num_seqs, stride, sums, counters, most, max_query_len, max_seq_len,
    shape: tl.constexpr, BLOCK_M: tl.constexpr, TILE: tl.constexpr, SEGMENTS: tl.constexpr,
):  # fmt: skip
    """`most` bounds the segments; both maxima are there for the choice alone."""
    number, kv_head = tl.program_id(0), tl.program_id(1)
    seq, block = find_q_block(starts, num_seqs, number, BLOCK_M // shape.group)
    attend_segment(
        q, k, v, out, tables, lens, starts, stride, sums, counters, seq, block, kv_head, tl.program_id(2),
        tl.minimum(most, SEGMENTS), number * shape.num_kv_heads + kv_head, shape, BLOCK_M, TILE,
    )  # fmt: skip


FEATURES = {
    "num_query_tokens": "q.shape[0]",
    "num_kv_heads": "k.shape[2]",
    "gqa_group_size": "q.shape[1] // k.shape[2]",
    "head_size": "q.shape[2]",
}
chosen = tuned("examples.anatomy.heuristics.anatomy", features=FEATURES)(tuned_kernel)


def segment_scratch(b: Batch, segments: int) -> Tensor:
    sizes = (b.q.shape[0] * b.q.shape[1], segments, b.shape.padded + 2)
    return torch.empty(sizes if segments > 1 else 1, dtype=torch.float32, device=b.q.device)


@cache
def counters_of(device: torch.device) -> Tensor:
    """Zeros, which each launch leaves as it finds them."""
    return torch.zeros(COUNTERS, dtype=torch.int32, device=device)


def attention(b: Batch, kernel: Any = None) -> Tensor:
    """`kernel`: what launches, for tuning; None: what the module chooses."""
    shape, tokens = b.shape, b.q.shape[0]
    fits = tokens <= MOST_TOKENS and (tokens + len(b.seq_lens)) * shape.num_kv_heads <= COUNTERS
    most = MOST_SEGMENTS if fits else 1
    arguments = (*b.args, segment_scratch(b, most), counters_of(b.q.device), most)
    arguments += (max(b.host_query_lens), max(b.host_seq_lens), shape)

    def grid(config: dict[str, Any]) -> tuple[int, int, int]:
        return b.num_q_blocks(config["BLOCK_M"]), shape.num_kv_heads, min(most, config["SEGMENTS"])

    (kernel or chosen)[grid](*arguments)
    return b.out
