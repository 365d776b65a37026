"""What is computed on the device once per plan: the schedule of the Hopper kernel, and where decodes end.

The schedule lists the work that programs share, in its order. Its one int32 tensor holds four parts. First
come two counters: tickets drawn, and programs that have drawn their last; both are zero between launches.
Then come the number of the prompts' Q-Blocks, the keys of each split of them, the keys that the longest one
sees, and the number of leading Q-Blocks that may have several splits. Then come the Q-Blocks, with all that a
program must know of each, so that it waits for no lengths. Last are the cumulative tiles of the decodes.

The longest Q-Blocks come first (Graham 1969). Those of about one length come by their sequences: programs
that run at the same time then read the same keys, which the L2 cache holds. docs/kernels.md ("How contexts
are split") says where prompts have splits.

The host says how many leading sequences of a mixed batch are decodes and how long they are at most. The
device checks this and treats the others as prompts, so a wrong count never gives a wrong result.
"""

from operator import attrgetter
from typing import NamedTuple

import triton
import triton.language as tl

from attn_kernels.core.structures import Launch, OfPlan, Plan
from attn_kernels.kernels.arguments import (
    CU_SEQLENS_Q,
    JIT_OPTIONS,
    NUM_SEQS,
    ONE_PROGRAM_OPTIONS,
    SEQUSED_K,
    multiprocessors,
    one_program_grid,
)
from attn_kernels.kernels.query_tile import load_lengths

BLOCK_M = 128  # rows of a prompt's Q-Block
SPLIT_KEYS_AT = 3
SPLITTABLE_AT = 5
Q_BLOCKS = 6  # the place of the Q-Blocks
Q_BLOCK_FIELDS = 5
SPLIT_COST = 670.0  # keys; found by timing one to 24 splits of 43 batches on an H100
CHUNK = 64  # Q-Blocks of one program


class Roles(NamedTuple):
    """What the Hopper kernel computes of a batch; 0 stands for a role that it lacks."""

    prompt_block_q: int  # query tokens of a prompt's Q-Block
    decode_block_q: int  # query tokens of a decode's Q-Block
    decode_tile: int  # keys of a decode's tile

    def max_q_blocks(self, num_query_tokens: int, num_seqs: int) -> int:
        """The most Q-Blocks of prompts, as ``find_sequence`` counts."""
        return num_query_tokens // self.prompt_block_q + num_seqs if self.prompt_block_q else 0

    def tiles_at(self, num_query_tokens: int, num_seqs: int) -> int:
        return Q_BLOCKS + Q_BLOCK_FIELDS * self.max_q_blocks(num_query_tokens, num_seqs)

    def length(self, num_query_tokens: int, num_seqs: int) -> int:
        return self.tiles_at(num_query_tokens, num_seqs) + num_seqs + 1


@triton.jit
def find_q_blocks(batch, numbers, BLOCK_Q: tl.constexpr):
    """Q-Blocks by their numbers, as in ``find_sequence``: their cost, and the fields of the schedule.

    The cost of a Q-Block is the number of keys that its last query sees (all of the sequence's, if attention
    is not causal, whatever windows layers have), but at least 1; a number without a
    Q-Block, or from ``max_q_blocks`` on, costs 0. The fields are the sequence, the first token, the number of
    query tokens, the last key that the first of them sees, and the number of keys of the sequence.
    """
    cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, max_q_blocks, causal = batch
    base = tl.load(cu_seqlens_q_ptr)
    seqs = numbers * 0
    step = 1
    while step < num_seqs:
        step *= 2
    while step > 0:
        further = seqs + step
        exists = further < num_seqs
        starts = (tl.load(cu_seqlens_q_ptr + further, mask=exists, other=0) - base) // BLOCK_Q + further
        seqs = tl.where(exists & (starts <= numbers), further, seqs)
        step //= 2
    seq_starts = tl.load(cu_seqlens_q_ptr + seqs)
    query_lens = tl.load(cu_seqlens_q_ptr + seqs + 1) - seq_starts
    first_queries = (numbers - ((seq_starts - base) // BLOCK_Q + seqs)) * BLOCK_Q
    num_keys = tl.load(seqused_k_ptr + seqs)
    first_limits = num_keys - query_lens + first_queries
    num_queries = tl.minimum(query_lens - first_queries, BLOCK_Q)
    exists = (numbers < max_q_blocks) & (num_queries > 0)
    seen = tl.where(causal > 0, first_limits + num_queries, num_keys)
    costs = tl.where(exists, tl.maximum(seen, 1), 0)
    return costs, (seqs, seq_starts + first_queries, num_queries, first_limits, num_keys)


@triton.jit
def grade_of(costs):
    """A number that grows by 1 from power of two to power of two in four steps."""
    return costs.to(tl.float32).to(tl.int32, bitcast=True) >> 21


@triton.jit
def rank_q_blocks(
    schedule_ptr, batch, gpu, BLOCK_Q: tl.constexpr, CHUNK: tl.constexpr, SPLIT_COST: tl.constexpr
):
    """Write this program's CHUNK of Q-Blocks to their places; the first program writes what precedes them."""
    max_q_blocks = batch[3]
    numbers = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    costs, fields = find_q_blocks(batch, numbers, BLOCK_Q)
    grades = grade_of(costs)
    ranks = tl.zeros([CHUNK], dtype=tl.int32)
    count = 0
    longest = 0
    work = 0.0
    for first in tl.range(0, max_q_blocks, CHUNK, num_stages=1):
        others = first + tl.arange(0, CHUNK)
        other_costs, _ = find_q_blocks(batch, others, BLOCK_Q)
        other_grades = grade_of(other_costs)
        dearer = other_grades[:, None] > grades[None, :]
        equal_before = (other_grades[:, None] == grades[None, :]) & (others[:, None] > numbers[None, :])
        ranks += tl.sum((dearer | equal_before).to(tl.int32), 0)
        count += tl.sum((other_costs > 0).to(tl.int32), 0)
        longest = tl.maximum(longest, tl.max(other_costs, 0))
        work += tl.sum(other_costs.to(tl.float32), 0)
    exists = costs > 0
    for field in tl.static_range(5):
        tl.store(schedule_ptr + 6 + 5 * ranks + field, fields[field], mask=exists)
    if tl.program_id(0) == 0:
        num_kv_heads, multiprocessors = gpu
        share = num_kv_heads / multiprocessors.to(tl.float32)  # programs of a multiprocessor, of each Q-Block
        tl.store(schedule_ptr + 2, count)
        keys = find_prompt_splits(count * share, work * share, longest, SPLIT_COST)
        tl.store(schedule_ptr + 3, keys)
        tl.store(schedule_ptr + 4, longest)
        splittable = 0
        if keys < longest:
            lowest = grade_of(tl.maximum(keys - 128, 1))  # the rest of the last tile counts as a tile
            for first in tl.range(0, max_q_blocks, CHUNK, num_stages=1):
                others = first + tl.arange(0, CHUNK)
                other_costs, _ = find_q_blocks(batch, others, BLOCK_Q)
                splittable += tl.sum((grade_of(other_costs) >= lowest).to(tl.int32), 0)
        tl.store(schedule_ptr + 5, splittable)


@triton.jit
def find_prompt_splits(blocks, work, longest, SPLIT_COST: tl.constexpr):
    """The keys of each split of prompts, 2^30 for one split each.

    ``blocks`` and ``work``, all their keys, are of a multiprocessor.
    """
    most = tl.maximum(longest, 1).to(tl.float32)
    if work >= 0.9 * blocks * most:  # all are about as long, and take turns
        counts = (1 + tl.arange(0, 64)).to(tl.float32)
        times = tl.maximum(tl.ceil(blocks * counts - 0.02), 1.0) * (most / counts + SPLIT_COST)
        keys = most / (1 + tl.argmin(times, 0))
        time = tl.min(times, 0)
        whole = tl.maximum(tl.ceil(blocks - 0.02), 1.0) * (most + SPLIT_COST)
    else:
        keys = tl.sqrt(work * (2.0 * SPLIT_COST))
        time = work + keys
        whole = tl.maximum(most, work) + SPLIT_COST
    return tl.where((time > 0.9 * whole) | (keys > most), 1 << 30, tl.ceil(keys).to(tl.int32))


@triton.jit(**JIT_OPTIONS)
def schedule_kernel(
    schedule_ptr, cu_prompts_ptr, cu_decodes_ptr, seqused_k_ptr, num_seqs, max_q_blocks, tiles_at,
    num_kv_heads, multiprocessors, causal, PROMPT_BLOCK_Q: tl.constexpr, DECODE_BLOCK_Q: tl.constexpr,
    DECODE_TILE: tl.constexpr, CHUNK: tl.constexpr, SPLIT_COST: tl.constexpr,
):  # fmt: skip
    """Write a schedule. All programs rank Q-Blocks of prompts, and the last program counts decodes' tiles."""
    if PROMPT_BLOCK_Q > 0:
        batch = (cu_prompts_ptr, seqused_k_ptr, num_seqs, max_q_blocks, causal)
        gpu = (num_kv_heads, multiprocessors)
        rank_q_blocks(schedule_ptr, batch, gpu, PROMPT_BLOCK_Q, CHUNK, SPLIT_COST)
    if DECODE_TILE > 0:  # noqa: SIM102  # the compiler knows it, unlike the program
        if tl.program_id(0) == tl.num_programs(0) - 1:
            LENGTH: tl.constexpr = 256  # sequences at a time
            before = 0
            tl.store(schedule_ptr + tiles_at, 0)
            for first in tl.range(0, num_seqs, LENGTH, num_stages=1):
                seqs = first + tl.arange(0, LENGTH)
                query_lens, keys = load_lengths(cu_decodes_ptr, seqused_k_ptr, seqs, num_seqs)
                tiles = tl.maximum(tl.cdiv(keys, DECODE_TILE), 1) * tl.cdiv(query_lens, DECODE_BLOCK_Q)
                places = tiles_at + 1 + seqs
                tl.store(schedule_ptr + places, before + tl.cumsum(tiles, 0), mask=seqs < num_seqs)
                before += tl.sum(tiles, 0)


def bind_schedule(roles: Roles, schedule: OfPlan, cu_prompts: OfPlan, cu_decodes: OfPlan) -> Launch:
    """The launch that writes a plan's ``schedule``.

    ``cu_prompts``, ``cu_decodes``: int32 [num_seqs + 1], where each role's query tokens begin.
    """

    def q_blocks(plan: Plan) -> int:
        return roles.max_q_blocks(plan.lengths.num_query_tokens, plan.lengths.num_seqs)

    def programs(plan: Plan) -> tuple[int]:
        return (max(1, -(-q_blocks(plan) // CHUNK)),)

    arguments = (schedule, cu_prompts, cu_decodes, SEQUSED_K, NUM_SEQS)
    sizes = (OfPlan(q_blocks), tiles_at(roles), OfPlan(attrgetter("model.num_kv_heads")))
    gpu = OfPlan(lambda plan: multiprocessors(plan.device))
    causal = OfPlan(lambda plan: int(plan.model.causal))
    constants = (*roles, CHUNK, SPLIT_COST)
    return Launch(
        schedule_kernel, programs, (*arguments, *sizes, gpu, causal, *constants), ONE_PROGRAM_OPTIONS
    )


def tiles_at(roles: Roles) -> OfPlan:
    return OfPlan(lambda plan: roles.tiles_at(plan.lengths.num_query_tokens, plan.lengths.num_seqs))


@triton.jit(**JIT_OPTIONS)
def divide_kernel(
    cu_decodes_ptr, cu_prompts_ptr, cu_seqlens_q_ptr, num_seqs, num_decodes, num_decode_tokens, max_decode_len
):
    """Write where the query tokens of each part's sequences begin; one program.

    The decodes are the longest prefix of the sequences that keeps three limits: ``num_decodes`` sequences,
    ``max_decode_len`` query tokens in each, and ``num_decode_tokens`` in all. Both outputs are int32
    [num_seqs + 1]. In that of the decodes, sequences behind the prefix have no tokens, and in that of the
    prompts, sequences of the prefix have none. Tokens keep their numbers.
    """
    CHUNK: tl.constexpr = 256  # sequences at a time
    boundary = num_decodes
    for first in tl.range(0, num_decodes, CHUNK, num_stages=1):
        seqs = first + tl.arange(0, CHUNK)
        exists = seqs < num_decodes
        starts = tl.load(cu_seqlens_q_ptr + seqs, mask=exists, other=0)
        stops = tl.load(cu_seqlens_q_ptr + seqs + 1, mask=exists, other=0)
        fits = (stops - starts <= max_decode_len) & (stops <= num_decode_tokens)
        boundary = tl.minimum(boundary, tl.min(tl.where(fits, num_decodes, seqs), 0))
    for first in tl.range(0, num_seqs + 1, CHUNK, num_stages=1):
        places = first + tl.arange(0, CHUNK)
        exists = places <= num_seqs
        decodes = tl.load(cu_seqlens_q_ptr + tl.minimum(places, boundary), mask=exists, other=0)
        prompts = tl.load(cu_seqlens_q_ptr + tl.maximum(places, boundary), mask=exists, other=0)
        tl.store(cu_decodes_ptr + places, decodes, mask=exists)
        tl.store(cu_prompts_ptr + places, prompts, mask=exists)


def _of_part(index: int, name: str) -> OfPlan:
    read = attrgetter(name)
    return OfPlan(lambda plan: read(plan.parts[index]))


ARGUMENTS = (
    _of_part(0, "cu_seqlens_q"),
    _of_part(1, "cu_seqlens_q"),
    CU_SEQLENS_Q,
    NUM_SEQS,
    _of_part(0, "lengths.num_seqs"),
    _of_part(0, "lengths.num_query_tokens"),
    _of_part(0, "lengths.max_query_len"),
)


def bind_divide(plan: Plan) -> tuple[Launch, ...]:
    return (Launch(divide_kernel, one_program_grid, ARGUMENTS, ONE_PROGRAM_OPTIONS),)
