"""Step 8: configs by an exported if-else module, chapter 5 of arXiv 2511.11581; the module is treegen's.

An autotuner would time configs whenever new lengths arrive. Here `triton-tune` times them once, and the module
that `treegen build` writes from the table chooses at each launch. A config names the step as well: SEGMENTS = 1
is step 5, and more are step 4 with step 5's tiles. So that the tuner times all of it, the program that finishes
last joins the segments (a ticket for each Q-Block) in place of a second kernel.
"""

import warnings
from functools import cache
from importlib.util import find_spec

import torch
import triton
import triton.language as tl
from torch import Tensor

from examples.anatomy.common import Batch, find_sequence
from examples.anatomy.step3_q_block import initial_state, load_q_block, store_q_block
from examples.anatomy.step5_tile_size import attend_tiles
from triton_tune import tuned

PACKAGE = "examples.anatomy.heuristics.anatomy"
FALLBACK = {"BLOCK_M": 64, "TILE": 64, "SEGMENTS": 1, "num_warps": 4, "num_stages": 2}  # as in treegen.yaml
MOST_SEGMENTS = 16
MOST_TOKENS = 512  # of a batch with segments, which bounds the memory of partial results
COUNTERS = 1 << 16
CONFIGS = [
    *((16, tile, segments, 4, 3) for tile in (32, 64, 128) for segments in (1, 2, 4, 8, 16)),
    *((32, tile, segments, 4, 3) for tile in (32, 64) for segments in (1, 4, 16)),
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
    columns = tl.arange(0, PADDED)
    queries, row, exists, last, num_keys = load_q_block(
        q, lens, starts, seq, block, kv_head * shape.group, shape.group, shape, BLOCK_M
    )
    if num_keys > 0:
        keys = tl.cdiv(tl.cdiv(num_keys, segments), TILE) * TILE
        first = segment * keys
        stop = tl.minimum(first + keys, num_keys)
        table = tables + seq * stride
        acc, largest, total = attend_tiles(
            queries, last, k, v, table, kv_head, first, stop, shape, BLOCK_M, TILE
        )
        if segments == 1:
            store_q_block(out, row, exists, acc / total[:, None], shape)
        else:
            part = sums + row * segments * (PADDED + 2)
            own = part + segment * (PADDED + 2)
            tl.store(own[:, None] + columns[None, :], acc, mask=exists[:, None])
            tl.store(own + PADDED, largest, mask=exists)
            tl.store(own + PADDED + 1, total, mask=exists)
            tl.debug_barrier()  # all threads have stored before one of them counts
            if tl.atomic_add(counters + slot, 1, sem="acq_rel") == segments - 1:
                tl.store(counters + slot, 0)
                tl.debug_barrier()
                acc, largest, total = initial_state(BLOCK_M, shape)
                for _ in range(segments):
                    their_largest = tl.load(part + PADDED, mask=exists, other=-1e38, cache_modifier=".cg")
                    their_total = tl.load(part + PADDED + 1, mask=exists, other=0.0, cache_modifier=".cg")
                    at = part[:, None] + columns[None, :]
                    theirs = tl.load(at, mask=exists[:, None], other=0.0, cache_modifier=".cg")
                    new = tl.maximum(largest, their_largest)
                    before, after = tl.exp2(largest - new), tl.exp2(their_largest - new)
                    acc = acc * before[:, None] + theirs * after[:, None]
                    total = total * before + their_total * after
                    largest = new
                    part += PADDED + 2
                store_q_block(out, row, exists, acc / total[:, None], shape)


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
    BLOCK_Q: tl.constexpr = BLOCK_M // shape.group
    number, kv_head = tl.program_id(0), tl.program_id(1)
    seq = find_sequence(starts, num_seqs, number, BLOCK_Q)
    block = number - (tl.load(starts + seq) // BLOCK_Q + seq)
    slot = number * shape.num_kv_heads + kv_head
    segments = tl.minimum(most, SEGMENTS)
    attend_segment(
        q, k, v, out, tables, lens, starts, stride, sums, counters, seq, block, kv_head, tl.program_id(2),
        segments, slot, shape, BLOCK_M, TILE,
    )  # fmt: skip


FEATURES = {
    "num_query_tokens": "q.shape[0]",
    "num_kv_heads": "k.shape[2]",
    "gqa_group_size": "q.shape[1] // k.shape[2]",
    "head_size": "q.shape[2]",
}


@cache
def chosen_kernel() -> object:
    """The kernel with the module's choice; where no module was built yet, with one fixed config."""
    try:
        if find_spec(PACKAGE):
            return tuned(PACKAGE, features=FEATURES)(tuned_kernel)
    except ModuleNotFoundError:
        pass
    warnings.warn(f"{PACKAGE} is missing, so step 8 has one fixed config: {FALLBACK}", stacklevel=3)
    return None


def segment_scratch(b: Batch, segments: int) -> Tensor:
    sizes = (b.q.shape[0] * b.q.shape[1], segments, b.shape.padded + 2)
    return torch.empty(sizes if segments > 1 else 1, dtype=torch.float32, device=b.q.device)


@cache
def counters_of(device: torch.device) -> Tensor:
    """Zeros, which each launch leaves as it finds them."""
    return torch.zeros(COUNTERS, dtype=torch.int32, device=device)


def attention(b: Batch, kernel: object = None) -> Tensor:
    """`kernel`: what launches, for tuning; the module's choice if None."""
    shape, tokens, num_seqs = b.shape, b.q.shape[0], len(b.seq_lens)
    fits = tokens <= MOST_TOKENS and (tokens + num_seqs) * shape.num_kv_heads <= COUNTERS
    most = MOST_SEGMENTS if fits else 1

    def grid(config: dict) -> tuple[int, int, int]:
        return b.num_q_blocks(config["BLOCK_M"]), shape.num_kv_heads, min(most, config["SEGMENTS"])

    arguments = (*b.args, segment_scratch(b, most), counters_of(b.q.device), most)
    arguments += (max(b.host_query_lens), max(b.host_seq_lens), shape)
    if kernel := kernel or chosen_kernel():
        kernel[grid](*arguments)
    else:
        tuned_kernel.fn[grid](*arguments, **FALLBACK)
    return b.out
