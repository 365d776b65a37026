"""The Q-Block kernel: unified paged attention for prefill, chunked prefill, decode and their mixtures.

One program computes one Q-Block. Its ``block_m`` rows are consecutive query tokens of one sequence times the
query heads that share one KV head. The tile of keys is independent of the page size. The source is "The
Anatomy of a Triton Attention Kernel" (arXiv 2511.11581, sections 4.4 and 4.6, appendix B).
"""

from collections.abc import Callable

import triton
import triton.language as tl

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, OfPlan, Plan
from attn_kernels.kernels.arguments import JIT_OPTIONS, Specialisation, common_arguments, of_workspace
from attn_kernels.kernels.compile_params import PagedCache, Scoring
from attn_kernels.kernels.hopper_limits import bind_hopper, bind_schedules, take_schedule
from attn_kernels.kernels.query_tile import attend_and_store, find_q_block, load_scales
from attn_kernels.kernels.schedule import schedule_kernel
from attn_kernels.kernels.variant import ConfigGrid, Variant

SCHEDULE = of_workspace(0)
L2_BYTES = 24 * 2**20  # L2 cache for K and V of the heads in flight; an A100 has 40 MB, newer GPUs more


@triton.jit(**JIT_OPTIONS)
def qblock_kernel(
    out_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    block_table_ptr,
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    slopes_ptr,
    sinks_ptr,
    k_scale_ptr,
    v_scale_ptr,
    factor,
    cap,
    k_scale,
    v_scale,
    window,
    num_seqs,
    stride_q_token,
    stride_q_head,
    stride_out_token,
    stride_out_head,
    stride_table,
    stride_k_page,
    stride_k_slot,
    stride_k_head,
    stride_v_page,
    stride_v_slot,
    stride_v_head,
    heads_per_group,
    const: tl.constexpr,
):
    # Longest first: the grid counts down, so a sequence's last queries, which see most keys, start early.
    q_block = tl.num_programs(0) // heads_per_group - 1 - tl.program_id(0) // heads_per_group
    kv_head = tl.program_id(1) * heads_per_group + tl.program_id(0) % heads_per_group
    block = find_q_block(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, q_block, kv_head, const)
    if block.num_queries < 1:
        return
    scoring = Scoring(factor, cap, window, slopes_ptr, sinks_ptr)
    scales = load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr)
    k = (k_ptr, stride_k_page, stride_k_slot, stride_k_head)
    v = (v_ptr, stride_v_page, stride_v_slot, stride_v_head)
    cache = PagedCache(block_table_ptr, stride_table, k, v)
    q = (q_ptr, stride_q_token, stride_q_head)
    out = (out_ptr, stride_out_token, stride_out_head)
    attend_and_store(q, out, block, cache, scoring, scales, const)


def heads_per_group(num_kv_heads: int, head_bytes: int, one_block_per_sequence: bool) -> int:
    """Return how many KV heads run side by side; groups of so many run one after the other.

    All of them, so that the longest Q-Blocks of all heads start first. There are fewer where several Q-Blocks
    read the same keys and values, and the L2 cache does not hold those of all heads (``head_bytes`` each).
    """
    if one_block_per_sequence or num_kv_heads * head_bytes <= L2_BYTES:
        return num_kv_heads
    fitting = max(1, min(num_kv_heads, L2_BYTES // head_bytes))
    return next(size for size in range(fitting, 0, -1) if num_kv_heads % size == 0)


def bind_group(plan: Plan, layer: Layer) -> Callable[[Plan], int]:
    """A function from a plan to ``heads_per_group``, for layers like this one."""
    block_q = plan.config.block_m // min(plan.model.queries_per_kv, plan.config.block_m)
    key_bytes = 2 * plan.model.head_size * layer.k_cache.element_size()

    def group(plan: Plan) -> int:
        one_block = plan.max_query_len <= block_q
        return heads_per_group(plan.model.num_kv_heads, plan.max_seq_len * key_bytes, one_block)

    return group


def max_q_blocks(plan: Plan, block_q: int) -> int:
    """The most Q-Blocks of ``block_q`` tokens in a batch of the plan's sizes, as ``find_sequence`` counts."""
    return plan.num_query_tokens // block_q + plan.num_seqs


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    return (Specialisation(qblock_kernel),)


def bind_once(plan: Plan) -> tuple[Launch, ...]:
    return bind_schedules(plan, SCHEDULE)


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    by_hopper = bind_hopper(plan, layer, SCHEDULE)
    if by_hopper:
        return by_hopper
    group = bind_group(plan, layer)
    arguments, const, options = common_arguments(plan, layer)

    def programs(plan: Plan) -> tuple[int, int, int]:
        heads = group(plan)
        return max_q_blocks(plan, const.block_q) * heads, plan.model.num_kv_heads // heads, const.head_splits

    return (Launch(qblock_kernel, programs, (*arguments, OfPlan(group), const), options),)


VARIANT = Variant(
    name="qblock",
    kernels=(qblock_kernel, schedule_kernel),
    bind=bind,
    bind_once=bind_once,
    scratch=take_schedule,
    specialise=specialise,
    parameters=frozenset({"descriptors"}),
    samples=(Config("qblock", block_m=64, tile_size=32),),
    grids=(
        ConfigGrid(M=(16,), T=(32, 64), W=(2, 4), S=(3,)),
        ConfigGrid(M=(16,), T=(64, 128), W=(4,), S=(2, 3)),
        ConfigGrid(M=(64,), T=(32, 64), W=(4,), S=(2, 3)),
        ConfigGrid(M=(64,), T=(32,), W=(4,), S=(4,)),
        ConfigGrid(M=(64,), T=(128,), W=(4,), S=(3,)),
        ConfigGrid(M=(128,), T=(128,), W=(8,), S=(2, 3)),
        # vLLM's fixed choices.
        ConfigGrid(M=(16, 32, 64, 128), T=(32,), W=(4,), S=(3,)),
        ConfigGrid(M=(128,), T=(64, 128), W=(8,), S=(2, 3), D=(1,)),
    ),
)
