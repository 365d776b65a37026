"""The Q-Block kernel: unified paged attention for prefill, chunked prefill, decode and their mixtures.

One program computes one Q-Block, or one split of its keys. The ``block_m`` rows of a Q-Block are consecutive
query tokens of one sequence times the query heads that share one KV head. The source is "The Anatomy of a
Triton Attention Kernel" (arXiv 2511.11581, sections 4.4 and 4.6, appendix B).
"""

from collections.abc import Sequence

import triton
import triton.language as tl
from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, OfPlan, Plan
from attn_kernels.kernels.arguments import (
    JIT_OPTIONS,
    MAX_QUERY_LEN,
    NUM_SPLITS,
    common_arguments,
    of_workspace,
    ranges_of,
)
from attn_kernels.kernels.compile_params import PagedCache, Scoring
from attn_kernels.kernels.hopper_joins import bind_joins
from attn_kernels.kernels.hopper_launch import bind_hopper, bind_schedules, launches, take_schedule
from attn_kernels.kernels.query_tile import (
    attend_cache,
    find_q_block,
    first_tile,
    initial_state,
    load_queries,
    load_scales,
)
from attn_kernels.kernels.schedule import SPLIT_KEYS_AT
from attn_kernels.kernels.splits import (
    SPLIT_KEYS,
    bind_reduce,
    bind_split_keys,
    find_split_keys,
    fixed_splits,
    join_states,
    max_q_blocks,
    one_program,
    reduce_kernel,
    split_keys_kernel,
    split_range,
    store_state,
    take_partials,
)
from attn_kernels.kernels.variant import ConfigGrid, Scratch, Variant

*PARTIALS, DEVICE_SPLIT_KEYS = map(of_workspace, range(4))
SCHEDULE = of_workspace(-1)  # where the Hopper kernel is launched
L2_BYTES = 24 * 2**20  # L2 cache for K and V of the heads in flight; an A100 has 40 MB, newer GPUs more


@triton.jit(**JIT_OPTIONS)
def qblock_kernel(
    out_ptr, q_ptr, k_ptr, v_ptr, block_table_ptr, cu_seqlens_q_ptr, seqused_k_ptr,
    slopes_ptr, sinks_ptr, k_scale_ptr, v_scale_ptr, lse_ptr,
    factor, cap, k_scale, v_scale, window, ahead, num_seqs,
    stride_q_token, stride_q_head, stride_out_token, stride_out_head, stride_lse, stride_table,
    stride_k_page, stride_k_slot, stride_k_head, stride_v_page, stride_v_slot, stride_v_head,
    partial_ptr, max_ptr, sum_ptr, split_keys_ptr, split_keys, num_splits,
    num_kv_heads, heads_per_group, max_query_len, ranges_ptr, max_ranges, const: tl.constexpr,
):  # fmt: skip
    # Longest first: the grid counts down, so a sequence's last queries, which see most keys, start early.
    q_block = tl.num_programs(0) // heads_per_group - 1 - tl.program_id(0) // heads_per_group
    split = tl.program_id(1) % num_splits
    kv_head = tl.program_id(1) // num_splits * heads_per_group + tl.program_id(0) % heads_per_group
    block = find_q_block(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, q_block, kv_head, max_query_len, const)
    if block.num_queries < 1:
        return
    split_keys = find_split_keys(split_keys_ptr, split_keys)
    ranges = (ranges_ptr, max_ranges)
    if const.invariant:
        first, count, end = fixed_splits(block, ranges, window, ahead, split_keys, const.windowed)
        whole = one_program(count, num_splits)
        unused = (split > 0) & (whole | (split >= count))
    else:
        first, end, keys = split_range(
            block, ranges, window, ahead, split_keys, num_splits, const.tile_size, const.windowed
        )
        start = first + split * keys
        unused = (split > 0) & (start >= end)
    if unused:
        return
    scoring = Scoring(factor, cap, window, ahead, slopes_ptr, sinks_ptr, ranges)
    scales = load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr)
    k = (k_ptr, stride_k_page, stride_k_slot, stride_k_head)
    v = (v_ptr, stride_v_page, stride_v_slot, stride_v_head)
    cache = PagedCache(block_table_ptr, stride_table, k, v)
    q = (q_ptr, stride_q_token, stride_q_head)
    out = (out_ptr, stride_out_token, stride_out_head)
    queries = load_queries(q, block, scoring, const)
    if const.invariant:
        begin = first_tile(queries.first_position, window, const.tile_size, const.windowed)
        state = initial_state(const)
        last = tl.where(whole, first + count, first + split + 1)
        for number in tl.range(first + split, last, num_stages=1):
            start = tl.maximum(number * split_keys, begin)
            stop = tl.minimum((number + 1) * split_keys, end)
            split_state = attend_cache(block, queries, cache, scoring, scales, start, stop, const)
            state = join_states(*state, *split_state)
    else:
        stop = tl.minimum(start + keys, end)
        state = attend_cache(block, queries, cache, scoring, scales, start, stop, const)
    partials = (partial_ptr, max_ptr, sum_ptr)
    heads = num_kv_heads * const.gqa_group_size
    if not const.invariant:
        whole = end - first <= keys
    lse = (lse_ptr, stride_lse)
    store_state(out, lse, partials, block, split, whole, num_splits, heads, scoring, state, const)


def heads_per_group(num_kv_heads: int, head_bytes: int, one_block_per_sequence: bool) -> int:
    """Return how many KV heads run side by side; groups of this many run one after the other.

    All of them, so that the longest Q-Blocks of all heads start first. There are fewer where several Q-Blocks
    read the same keys and values, and the L2 cache does not hold those of all heads (``head_bytes`` each).
    """
    if one_block_per_sequence or num_kv_heads * head_bytes <= L2_BYTES:
        return num_kv_heads
    fitting = max(1, min(num_kv_heads, L2_BYTES // head_bytes))
    return next(size for size in range(fitting, 0, -1) if num_kv_heads % size == 0)


def take_scratch(scratch: Scratch, plan: Plan) -> tuple[Tensor, ...]:
    """The tensors of ``store_partial``, where the device writes the keys of each split, and the schedule."""
    partials, schedule = take_partials(scratch, plan), take_schedule(scratch, plan)
    if schedule:
        return *partials, schedule[0][SPLIT_KEYS_AT : SPLIT_KEYS_AT + 1], *schedule
    return (*partials, scratch.split_keys(plan.part)) if plan.batch.for_capture else partials


def bind_once(plan: Plan) -> tuple[Launch, ...]:
    if launches(plan.config, plan.device):
        return bind_schedules(plan, SCHEDULE)
    return bind_split_keys(plan, DEVICE_SPLIT_KEYS) if plan.batch.for_capture else ()


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    counted = layer.ahead is None or not plan.model.causal  # whether the schedule counts all keys
    num_splits = NUM_SPLITS if counted else 1
    by_hopper = bind_hopper(plan, layer, SCHEDULE, fragments=(None, *PARTIALS), num_splits=num_splits)
    # The Hopper kernel does not split what a window hides in part.
    if not by_hopper or layer.sliding_window or not counted:
        return by_hopper or bind_with_pointers(plan, layer)
    return *by_hopper, bind_joins(plan, layer, PARTIALS, SCHEDULE)


def bind_with_pointers(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """The launches for any GPU and layout."""
    by_hopper = launches(plan.config, plan.device)
    splits = plan.config.variant == "qblock" or not by_hopper
    split_keys = DEVICE_SPLIT_KEYS if splits and (by_hopper or plan.batch.for_capture) else None
    return bind_q_blocks(plan, layer, PARTIALS if splits else (None,) * 3, split_keys, NUM_SPLITS)


def bind_q_blocks(
    plan: Plan, layer: Layer, partials: Sequence[OfPlan | None], split_keys: OfPlan | None, num_splits: OfPlan
) -> tuple[Launch, ...]:
    """The launches of ``qblock_kernel`` and of what joins its splits; arguments as of ``bind_reduce``."""
    arguments, const, options = common_arguments(plan, layer)
    key_bytes = 2 * plan.model.head_size * layer.k_cache.element_size()

    def group(plan: Plan) -> int:
        one_block = plan.lengths.max_query_len <= const.block_q
        return heads_per_group(plan.model.num_kv_heads, plan.lengths.max_seq_len * key_bytes, one_block)

    def programs(plan: Plan) -> tuple[int, int, int]:
        heads = group(plan)
        groups = plan.model.num_kv_heads // heads
        parts = const.head_splits * const.column_parts
        return max_q_blocks(plan.lengths, const.block_q) * heads, groups * num_splits.value(plan), parts

    heads = plan.model.num_kv_heads
    of_splits = (*partials, split_keys, SPLIT_KEYS, num_splits)
    arguments = (*arguments, *of_splits, heads, OfPlan(group), MAX_QUERY_LEN, *ranges_of(layer), const)
    kernel = Launch(qblock_kernel, programs, arguments, options)
    return kernel, *bind_reduce(layer, partials, split_keys, num_splits, const)


VARIANT = Variant(
    name="qblock",
    bind=bind,
    bind_once=bind_once,
    scratch=take_scratch,
    kernels=(qblock_kernel, split_keys_kernel, reduce_kernel),
    parameters=frozenset({"tma"}),
    samples=(Config("qblock", block_m=64, tile_size=32),),
    grids=(
        ConfigGrid(M=(16,), T=(32,), W=(2, 4), S=(3,)),
        ConfigGrid(M=(16,), T=(64,), W=(4,), S=(3,)),
        ConfigGrid(M=(16,), T=(128,), W=(4,), S=(2,)),
        ConfigGrid(M=(64,), T=(32, 64), W=(4,), S=(3,)),
        ConfigGrid(M=(64,), T=(32,), W=(4,), S=(2,)),
        ConfigGrid(M=(128,), T=(64,), W=(8,), S=(3,)),
        ConfigGrid(M=(128,), T=(64,), W=(8,), S=(2,), D=(1,)),
        ConfigGrid(M=(128,), T=(64, 128), W=(8,), S=(3,), D=(1,)),
        ConfigGrid(M=(16, 32), T=(32,), W=(4,), S=(2,), wide_heads=True),
        ConfigGrid(M=(128,), T=(32,), W=(8,), S=(2,), wide_heads=True),
    ),
)
