"""Splits of long contexts: how many keys each holds, their partial results, and the kernel that joins these.

docs/kernels.md ("How contexts are split") says why there are as many. Sources: "The Anatomy of a Triton
Attention Kernel", arXiv 2511.11581, section 4.5 and listing 5; Flash-Decoding (Dao et al., 2023).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, Self

import triton
import triton.language as tl
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.lengths import MAX_DRAFT, Lengths
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Launch, Layer, OfLayer, OfPlan, Plan
from attn_kernels.kernels.arguments import (
    CU_SEQLENS_Q,
    JIT_OPTIONS,
    MAX_QUERY_LEN,
    NUM_SEQS,
    ONE_PROGRAM_OPTIONS,
    SEQUSED_K,
    head_padded,
    lse_arguments,
    multiprocessors,
    one_program_grid,
    ranges_of,
)
from attn_kernels.kernels.compile_params import CompileParams, QBlock, ReduceParams, Scoring
from attn_kernels.kernels.query_tile import (
    end_of_keys,
    find_sequence,
    first_key,
    first_tile,
    in_base_2,
    in_base_e,
    initial_state,
    load_lengths,
    make_q_block,
    query_heads,
    store_normalised,
    valid_rows,
)
from attn_kernels.kernels.variant import Scratch

# Keys that a program reads while a multiprocessor writes the partial result of one row. Of the numbers of
# splits that were timed on an H100 and an H200, this one loses 2% to the best of each batch.
ROW_COST = 3.0
HOPPER_ROW_COST = 7.5  # of the Hopper kernel's prompts, which compute faster
LEAST_SPLITS = 2.5  # fewer take longer than none: joining them is a launch of its own
MAX_SPLITS = 64  # of a context
MAX_SPLITS_OF_FEW = 256  # where 64 do not make ``enough`` programs: with few sequences and KV heads
LEAST_EVEN = 0.95  # the mean context over the longest, from which a ``Wave`` has fewer splits
TILE_BYTES = 210 << 10  # of a multiprocessor's shared memory, for tiles of keys and values
# Of keys and values on their way to a multiprocessor, which keep its share of the memory busy: for long
# contexts, and for short ones, where fewer bytes cost less than joining splits does.
BYTES_IN_FLIGHT, BYTES_IF_SHORT = 64 << 10, 52 << 10
MOST_WARPS = 12  # of a multiprocessor: they have about 168 registers per thread


def heads_of_tile(config: Config, gqa_group_size: int) -> int:
    """Query heads that share a query tile."""
    return min(gqa_group_size, config.block_m)


def query_tokens_of_tile(config: Config, model: Model) -> int:
    return config.block_m // heads_of_tile(config, model.gqa_group_size)


def rows_of_q_block(config: Config, model: Model) -> int:
    """Rows of the query tiles that compute the same query tokens, for all heads."""
    heads = heads_of_tile(config, model.gqa_group_size)
    return config.block_m * -(-model.gqa_group_size // heads) * model.num_kv_heads


def max_q_blocks(lengths: Lengths, block_q: int) -> int:
    """The most Q-Blocks of ``block_q`` query tokens in a batch, as ``find_q_block`` counts them."""
    if lengths.max_query_len <= block_q:
        return lengths.num_seqs
    return lengths.num_query_tokens // block_q + lengths.num_seqs


class Wave(NamedTuple):
    """The Q-Blocks of decodes whose programs run at once or in even waves, for a config and a model.

    The numbers were found by timing one to 48 splits of 31 batches on an H100, and of 23 on an H200.
    """

    held: float  # the most that the GPU holds at once
    busy: float  # this many programs keep the memory busy: fewer Q-Blocks are split until they make as many
    enough: float  # from this many on, splits gain less than joining them costs
    enough_if_short: float  # the same for contexts up to ``short``
    on_all: float  # with this many, each multiprocessor has one program
    full: float = 0.9  # the least mean number of programs over the largest, of all multiprocessors or waves
    short: float = 4096.0  # keys: up to here, contexts stay whole on multiprocessors that are less full, too

    @classmethod
    @lru_cache(maxsize=4096)
    def of(cls, config: Config, model: Model, multiprocessors: int) -> Self:
        tiles = 4 * config.tile_size * head_padded(model.head_size) * max(1, config.num_stages - 1)  # 16-bit
        # By measurement, programs with more rows do best if a multiprocessor is taken to hold only one.
        held = max(1, min(TILE_BYTES // tiles, MOST_WARPS // config.num_warps)) if config.block_m <= 16 else 1
        busy = max(1.0, held * 2 / 3)
        if model.kv_element_size < 2:  # a program reads fewer bytes at a time
            busy = min(held, 1.5 * busy)
        enough, enough_if_short = (
            min(held, max(0.75, 2 * in_flight / (tiles * model.kv_element_size)))
            for in_flight in (BYTES_IN_FLIGHT, BYTES_IF_SHORT)
        )
        on_all = multiprocessors * config.block_m / rows_of_q_block(config, model)
        return cls(held * on_all, busy * on_all, enough * on_all, enough_if_short * on_all, on_all)

    def splits(self, q_blocks: int, longest: int) -> float:
        """How many splits each context has in even waves of programs; infinity if waves would be uneven."""
        short = longest <= self.short
        whole = q_blocks >= (self.enough_if_short if short else self.enough)
        splits = 1 if whole else max(1, math.floor(self.busy / q_blocks))
        one_wave = q_blocks <= self.held
        # Programs of a multiprocessor, or waves.
        programs = splits * q_blocks / (self.on_all if one_wave else self.held)
        good = programs >= self.full * math.ceil(programs) or (one_wave and whole and short)
        return splits if good else math.inf


def largest(config: Config, model: Model, lengths: Lengths) -> tuple[int, int]:
    """The most keys that a query sees, and the most Q-Blocks."""
    longest = min(lengths.max_seq_len, model.sliding_window or lengths.max_seq_len)
    block_q = query_tokens_of_tile(config, model)
    q_blocks = min(max_q_blocks(lengths, block_q), lengths.num_seqs * -(-lengths.max_query_len // block_q))
    return longest, q_blocks


def most_hopper_splits(
    config: Config, model: Model, lengths: Lengths, multiprocessors: int, max_partials: int
) -> tuple[int, int]:
    """How many splits the Hopper kernel may give a context of prompts; as ``find_splits``.

    The device finds the keys of each, in ``schedule``. One where that hardly pays by the mean context.
    """
    longest, q_blocks = largest(config, model, lengths)
    rows = q_blocks * rows_of_q_block(config, model)
    mean = lengths.num_kv_tokens / max(1, lengths.num_seqs)
    keys = math.sqrt(HOPPER_ROW_COST * mean * rows / multiprocessors)
    if model.sliding_window or not rows or longest < LEAST_SPLITS * keys:
        return 1, longest
    room = max_partials // max(1, lengths.num_query_tokens * model.num_query_heads)
    few = multiprocessors * config.block_m // rows  # programs for each Q-Block, where these are few
    return max(1, min(max(JOINED_AT_ONCE[0], few), MAX_SPLITS, room, longest // 256)), longest


def find_splits(
    config: Config, model: Model, lengths: Lengths, multiprocessors: int, max_partials: int
) -> tuple[int, int]:
    """How many splits the contexts of a batch have at most, and the keys of each.

    Args:
        max_partials: partial results that there is room for, one for each query token, head and split.
    """
    longest, q_blocks = largest(config, model, lengths)
    if not q_blocks or not longest:
        return 1, longest
    rows = q_blocks * rows_of_q_block(config, model)
    keys = math.sqrt(ROW_COST * longest * rows / multiprocessors)
    if longest < LEAST_SPLITS * keys:
        return 1, longest
    least = LEAST_SPLITS
    even = lengths.num_kv_tokens >= LEAST_EVEN * lengths.num_seqs * longest
    if even and lengths.max_query_len <= MAX_DRAFT:
        splits = Wave.of(config, model, multiprocessors).splits(q_blocks, longest)
        if longest / splits > keys:
            keys, least = longest / splits, 2
    tiles, split_tiles = -(-longest // config.tile_size), max(1, round(keys / config.tile_size))
    splits = (tiles + split_tiles // 2) // split_tiles
    if splits < least:
        return 1, longest
    room = max_partials // max(1, lengths.num_query_tokens * model.num_query_heads)
    if splits > MAX_SPLITS:
        # The splits of the longest context that give enough programs, together with those of the others.
        enough = Wave.of(config, model, multiprocessors).enough * longest * lengths.num_seqs
        enough /= q_blocks * max(1, lengths.num_kv_tokens)
        splits = min(splits, max(MAX_SPLITS, min(MAX_SPLITS_OF_FEW, int(enough))))
    return max(1, min(splits, room)), round(keys)


@triton.jit(**JIT_OPTIONS)
def split_keys_kernel(
    split_keys_ptr, cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, max_query_len, max_draft, block_q, window,
    row_cost, least_splits, least_even, held, busy, enough, enough_if_short, on_all, full, short,
):  # fmt: skip
    """Store the keys of each split of a batch, as ``find_splits`` finds them; one program.

    ``row_cost``: of all rows of a Q-Block, over the multiprocessors. ``window``: 0 for none. The last are a
    ``Wave``.
    """
    CHUNK: tl.constexpr = 256  # sequences at a time
    longest = tl.zeros([CHUNK], dtype=tl.int32)
    totals = tl.zeros([CHUNK], dtype=tl.float32)
    present = tl.zeros([CHUNK], dtype=tl.int32)
    q_blocks = tl.zeros([CHUNK], dtype=tl.int32)
    for first in tl.range(0, num_seqs, CHUNK, num_stages=1):
        seqs = first + tl.arange(0, CHUNK)
        query_lens, context_lens = load_lengths(cu_seqlens_q_ptr, seqused_k_ptr, seqs, num_seqs)
        context_lens = tl.where(query_lens > 0, context_lens, 0)
        if window > 0:
            context_lens = tl.minimum(context_lens, window)
        longest = tl.maximum(longest, context_lens)
        totals += context_lens.to(tl.float32)
        present += (query_lens > 0).to(tl.int32)
        q_blocks += tl.cdiv(query_lens, block_q)
    most = tl.maximum(tl.max(longest, 0), 1).to(tl.float32)
    blocks = tl.maximum(tl.sum(q_blocks, 0), 1).to(tl.float32)
    keys = tl.sqrt(row_cost * most * blocks)
    keys = tl.where(most < least_splits * keys, most, keys)
    even = tl.sum(totals, 0) / (tl.maximum(tl.sum(present, 0), 1).to(tl.float32) * most)
    if (max_query_len <= max_draft) & (even >= least_even):
        whole = blocks >= tl.where(most <= short, enough_if_short, enough)
        splits = tl.where(whole, 1.0, tl.maximum(tl.floor(busy / blocks), 1.0))
        one_wave = blocks <= held
        programs = splits * blocks / tl.where(one_wave, on_all, held)
        if (programs >= full * tl.ceil(programs)) | (one_wave & whole & (most <= short)):
            keys = tl.maximum(keys, most / splits)
    tl.store(split_keys_ptr, tl.maximum(keys, 1.0).to(tl.int32))


def bind_split_keys(plan: Plan, split_keys: OfPlan) -> tuple[Launch, ...]:
    """The launch that finds the keys of each split, where ``take_partials`` gave memory for them."""
    config, model = plan.config, plan.model
    block_q = query_tokens_of_tile(config, model)
    window = model.sliding_window or 0
    of_batch = (split_keys, CU_SEQLENS_Q, SEQUSED_K, NUM_SEQS, MAX_QUERY_LEN, MAX_DRAFT, block_q, window)
    row_cost = ROW_COST * rows_of_q_block(config, model) / multiprocessors(plan.device)
    wave = Wave.of(config, model, multiprocessors(plan.device))
    arguments = (*of_batch, row_cost, LEAST_SPLITS, LEAST_EVEN, *wave)

    def needed(plan: Plan) -> bool:
        return plan.num_splits > 1

    return (Launch(split_keys_kernel, one_program_grid, arguments, ONE_PROGRAM_OPTIONS, needed),)


@triton.jit
def find_split_keys(split_keys_ptr, split_keys):
    """The keys of each split: what the device has found, or ``split_keys``."""
    if split_keys_ptr is None:
        return split_keys
    else:
        return tl.load(split_keys_ptr)


@triton.jit
def split_range(block, ranges, window, ahead, split_keys, num_splits, tile_size, WINDOWED: tl.constexpr):
    """The keys ``start .. stop - 1`` that a QBlock sees, and how many each split of them holds.

    Splits are even, in whole tiles: as many of about ``split_keys`` keys as fit, at most ``num_splits``.
    """
    first_position = block.context_len + block.first_query
    start = first_tile(first_position, window, tile_size, WINDOWED)
    stop = tl.maximum(end_of_keys(block, ahead, ranges), start)
    tiles = tl.cdiv(stop - start, tile_size)
    return start, stop, tiles_per_split(tiles, split_keys, num_splits, tile_size) * tile_size


@triton.jit
def tiles_per_split(tiles, split_keys, num_splits, tile_size):
    split_tiles = tl.maximum((split_keys + tile_size // 2) // tile_size, 1)
    splits = tl.maximum((tiles + split_tiles // 2) // split_tiles, 1)
    return tl.cdiv(tiles, tl.minimum(splits, num_splits))


@triton.jit
def fixed_splits(block, ranges, window, ahead, split_keys, WINDOWED: tl.constexpr):
    """Splits at multiples of ``split_keys``: the first that a QBlock sees, how many, and its keys' end."""
    first_position = block.context_len + block.first_query
    first = first_key(first_position, window, WINDOWED) // split_keys
    end = end_of_keys(block, ahead, ranges)
    return first, tl.cdiv(end, split_keys) - first, end


@triton.jit
def one_program(count, num_splits):
    """Whether one program computes a Q-Block that sees ``count`` fixed splits, and not one each."""
    return (count <= 1) | (count > num_splits)


@triton.jit
def join_states(acc, row_max, row_sum, next_acc, next_max, next_sum):
    """The softmax state of two sets of keys. One that is masked for a row changes no bit of it."""
    new_max = tl.maximum(row_max, next_max)
    old = tl.exp2(row_max - new_max)
    new = tl.exp2(next_max - new_max)
    acc = tl.fma(acc, tl.broadcast_to(old[:, None], acc.shape), next_acc * new[:, None])
    return acc, new_max, tl.fma(row_sum, old, next_sum * new)


@triton.jit
def store_partial(partials, block, split, num_splits, num_query_heads, state, const: tl.constexpr):
    """Write the softmax state of a split for ``reduce_kernel``, in float32.

    Its tensors are [tokens, heads, splits, head_padded] and twice [tokens, heads, splits].
    """
    acc, row_max, row_sum = state
    partial_ptr, max_ptr, sum_ptr = partials
    valid = valid_rows(block, const)
    tokens = block.first_token + tl.arange(0, const.block_m) // const.heads
    places = (tokens * num_query_heads + query_heads(block, const)) * num_splits + split
    tl.store(max_ptr + places, row_max, mask=valid)
    tl.store(sum_ptr + places, row_sum, mask=valid)
    columns = block.first_column + tl.arange(0, const.columns)
    partial_ptrs = partial_ptr + (places * const.head_padded)[:, None] + columns[None, :]
    tl.store(partial_ptrs, acc, mask=valid[:, None])


@triton.jit
def store_state(
    out, lse, partials, block, split, whole, num_splits, num_query_heads, scoring, state, const: tl.constexpr
):
    """Write the results of a QBlock whose keys are one split, or else the split's partial results."""
    if partials[0] is None:  # noqa: SIM114  # the compiler knows it, unlike ``whole``
        store_normalised(out, lse, block, scoring, *state, const)
    elif whole:
        store_normalised(out, lse, block, scoring, *state, const)
    else:
        store_partial(partials, block, split, num_splits, num_query_heads, state, const)


@triton.jit(**JIT_OPTIONS)
def reduce_kernel(
    out_ptr, partial_ptr, max_ptr, sum_ptr, split_keys_ptr, cu_seqlens_q_ptr, seqused_k_ptr,
    sinks_ptr, lse_ptr, window, ahead, num_seqs, split_keys, num_splits, block_q, tile_size,
    stride_out_token, stride_out_head, stride_lse, ranges_ptr, max_ranges, const: tl.constexpr,
):  # fmt: skip
    """Join the splits of one query token, head and block of columns; ``const`` is a ReduceParams.

    ``block_q`` and ``tile_size`` are those of the kernel that wrote the splits. They are run-time arguments,
    so that configs of different tiles share a binary. Fixed splits have no ``tile_size``.
    """
    token = tl.program_id(0)
    head = tl.program_id(1)
    seq = find_sequence(cu_seqlens_q_ptr, num_seqs, token)
    query = token - tl.load(cu_seqlens_q_ptr + seq)
    block = make_q_block(cu_seqlens_q_ptr, seqused_k_ptr, seq, query // block_q, head, 0, block_q)
    if query < 0 or query - block.first_query >= block.num_queries:  # a token of no sequence
        return
    split_keys = find_split_keys(split_keys_ptr, split_keys)
    ranges = (ranges_ptr, max_ranges)
    partials = (partial_ptr, max_ptr, sum_ptr)
    out = (out_ptr, stride_out_token, stride_out_head)
    lse = (lse_ptr, stride_lse)
    if const.invariant:
        _, count, _ = fixed_splits(block, ranges, window, ahead, split_keys, const.windowed)
        if one_program(count, num_splits):
            return
        first = (token.to(tl.int64) * tl.num_programs(1) + head) * num_splits
        row = QBlock(
            seq, query, 1, token.to(tl.int64), block.context_len, head.to(tl.int64), 0, block.num_keys, 0
        )
        scoring = Scoring(0.0, 0.0, window, ahead, None, sinks_ptr, ranges)
        store_normalised(out, lse, row, scoring, *join_in_order(partials, first, count, const), const)
    else:
        start, stop, keys = split_range(
            block, ranges, window, ahead, split_keys, num_splits, tile_size, const.windowed
        )
        if stop - start <= keys:  # one split, or no key
            return
        count = tl.cdiv(stop - start, keys)
        first = (token.to(tl.int64) * tl.num_programs(1) + head) * num_splits
        join_at_once(out, lse, partials, sinks_ptr, token, head, first, count, const)


@triton.jit
def join_in_order(partials, first, count, const: tl.constexpr):
    """The softmax state of the splits of one row, one after the other."""
    HEAD_PADDED: tl.constexpr = const.head_padded
    partial_ptr, max_ptr, sum_ptr = partials
    places = first + tl.arange(0, 1)
    columns = tl.arange(0, HEAD_PADDED)[None, :]
    state = initial_state(const)
    for _ in tl.range(0, count, loop_unroll_factor=8):  # so that loads do not wait for one another
        next_max = tl.load(max_ptr + places)
        next_sum = tl.load(sum_ptr + places)
        next_acc = tl.load(partial_ptr + (places * HEAD_PADDED)[:, None] + columns)
        state = join_states(*state, next_acc, next_max, next_sum)
        places += 1
    return state


@triton.jit
def join_at_once(out, lse, partials, sinks_ptr, token, head, first, count, const: tl.constexpr):
    """Write a block of columns of a row's result, of splits that are all read at once."""
    SPLITS: tl.constexpr = const.splits
    COLUMNS: tl.constexpr = const.columns
    partial_ptr, max_ptr, sum_ptr = partials
    out_ptr, stride_out_token, stride_out_head = out
    lse_ptr, stride_lse = lse
    splits = tl.arange(0, SPLITS)
    maxima = tl.load(max_ptr + first + splits, mask=splits < count, other=-1e38)
    sums = tl.load(sum_ptr + first + splits, mask=splits < count, other=0.0)
    largest = tl.max(maxima, 0)
    if sinks_ptr is not None:
        sink = in_base_2(tl.load(sinks_ptr + head))
        largest = tl.maximum(largest, sink)
    total = tl.sum(sums * tl.exp2(maxima - largest), 0)
    if sinks_ptr is not None:
        total += tl.exp2(sink - largest)

    columns = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    partial_ptrs = partial_ptr + ((first + splits) * const.head_padded)[:, None] + columns[None, :]
    partials = tl.load(partial_ptrs, mask=(splits < count)[:, None], other=0.0)
    # A row that sees no key has no weights.
    result = tl.sum(partials * tl.exp2(maxima - largest)[:, None], 0) / tl.where(total > 0.0, total, 1.0)
    unit: tl.constexpr = const.query_unit
    out_ptr += (token.to(tl.int64) * stride_out_token + head.to(tl.int64) * stride_out_head) * unit
    tl.store(out_ptr + columns, result.to(out_ptr.dtype.element_ty), mask=columns < const.head_size)
    if lse_ptr is not None:
        lse_ptr += head.to(tl.int64) * stride_lse + token
        tl.store(lse_ptr, in_base_e(largest + tl.log2(total)), mask=tl.program_id(2) == 0)


# A program reads all its splits at once. Few splits are the rule, and then it joins more columns.
JOINED_AT_ONCE = (16, MAX_SPLITS, MAX_SPLITS_OF_FEW)
# One warp: no sum has to cross warps, and there are programs for every token and head.
REDUCE_OPTIONS = {"num_warps": 1, "enable_fp_fusion": True}
JOIN_OPTIONS = {"num_warps": 1, "enable_fp_fusion": False}  # of fixed splits


def take_partials(scratch: Scratch, plan: Plan) -> tuple[Tensor, ...]:
    """The tensors of ``store_partial``."""
    model = plan.model
    rows = plan.lengths.num_query_tokens * model.num_query_heads
    return scratch.partials(rows, plan.num_splits, head_padded(model.head_size))


SPLIT_KEYS = OfPlan(lambda plan: plan.split_keys)


def bind_reduce(
    layer: Layer,
    partials: Sequence[OfPlan | None],
    split_keys: OfPlan | None,
    num_splits: OfPlan,
    const: CompileParams,
) -> tuple[Launch, ...]:
    """The launches that join all splits into the layer's output, of which a plan needs one at most.

    Args:
        partials: the tensors of ``store_partial``. split_keys: what the device found; None if it did not.
        num_splits: programs of each Q-Block.
        const: of the kernel that writes the splits.
    """
    lse, lse_stride = lse_arguments(layer)
    arguments = (
        OfLayer("out"),
        *partials,
        split_keys,
        CU_SEQLENS_Q,
        SEQUSED_K,
        None if layer.sinks is None else OfLayer("sinks"),
        lse,
        layer.sliding_window or 0,
        layer.ahead,
        NUM_SEQS,
        SPLIT_KEYS,
        num_splits,
        const.block_q,
        None if const.invariant else const.tile_size,
        *(n // const.query_unit for n in layer.out.stride()[:2]),
        lse_stride,
        *ranges_of(layer),
    )

    def launch(fewer: int, most: float, at_once: int) -> Launch:
        reduced = ReduceParams.of(const, at_once)
        blocks = const.head_padded // reduced.columns

        def programs(plan: Plan) -> tuple[int, int, int]:
            return plan.lengths.num_query_tokens, plan.model.num_query_heads, blocks

        def needed(plan: Plan) -> bool:
            count: int = num_splits.value(plan)
            return fewer < count <= most

        options = JOIN_OPTIONS if const.invariant else REDUCE_OPTIONS
        return Launch(reduce_kernel, programs, (*arguments, reduced), options, needed)

    if const.invariant:
        return (launch(1, math.inf, 1),)
    return tuple(launch(fewer, most, most) for fewer, most in pairwise((1, *JOINED_AT_ONCE)))
