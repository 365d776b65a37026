"""The Q-Block kernel: unified paged attention for prefill, chunked prefill, decode and their mixtures.

One program computes one Q-Block: ``block_m`` rows = consecutive query tokens of one sequence times the query
heads that share one KV head ("The Anatomy of a Triton Attention Kernel", arXiv 2511.11581, section 4.4 and
appendix B). The tile of keys is independent of the page size (section 4.6).
"""

import importlib
from collections.abc import Callable
from functools import cache as memoize
from types import ModuleType

import torch
import triton
import triton.language as tl

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, OfPlan, Plan
from attn_kernels.kernels.arguments import JIT_OPTIONS, Specialisation, common
from attn_kernels.kernels.compile_params import Cache, Scoring
from attn_kernels.kernels.rows import attend_and_store, load_scales, place_q_block

L2_BYTES = 24 * 2**20  # what K and V of the heads in flight may fill, of the 40 MB (A100) or more of a GPU


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
    block = place_q_block(cu_seqlens_q_ptr, seqused_k_ptr, num_seqs, q_block, kv_head, const)
    if block.num_queries < 1:
        return
    scoring = Scoring(factor, cap, window, slopes_ptr, sinks_ptr)
    scales = load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr)
    cache = Cache(
        block_table_ptr,
        k_ptr,
        v_ptr,
        stride_table,
        stride_k_page,
        stride_k_slot,
        stride_k_head,
        stride_v_page,
        stride_v_slot,
        stride_v_head,
    )
    attend_and_store(
        q_ptr,
        stride_q_token,
        stride_q_head,
        out_ptr,
        stride_out_token,
        stride_out_head,
        block,
        cache,
        scoring,
        scales,
        const,
    )


def heads_per_group(num_kv_heads: int, head_bytes: int, one_block_per_sequence: bool) -> int:
    """How many KV heads run side by side; the groups of heads run one after the other.

    All of them, so that the longest Q-Blocks of all heads start first, unless several Q-Blocks read the
    same keys and values again and those of all heads (``head_bytes`` each) would not stay in the L2 cache.
    """
    if one_block_per_sequence or num_kv_heads * head_bytes <= L2_BYTES:
        return num_kv_heads
    fitting = max(1, min(num_kv_heads, L2_BYTES // head_bytes))
    return next(size for size in range(fitting, 0, -1) if num_kv_heads % size == 0)


def bind_group(plan: Plan, layer: Layer) -> Callable[[Plan], int]:
    """``heads_per_group`` of the launches of Q-Blocks for layers like this one."""
    block_q = plan.config.block_m // min(plan.model.queries_per_kv, plan.config.block_m)
    key_bytes = 2 * plan.model.head_size * layer.k_cache.element_size()

    def group(plan: Plan) -> int:
        one_block = plan.max_query_len <= block_q
        return heads_per_group(plan.model.num_kv_heads, plan.max_seq_len * key_bytes, one_block)

    return group


def q_blocks_bound(plan: Plan, block_q: int) -> int:
    """No batch of the plan's sizes has more Q-Blocks of ``block_q`` query tokens; see ``find_sequence``."""
    return plan.num_query_tokens // block_q + plan.num_seqs


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    return (Specialisation(qblock_kernel),)


@memoize
def hopper_kernel(device: torch.device) -> ModuleType | None:
    """The Hopper kernel, on a GPU that has what it needs and where Triton's experimental Gluon does too."""
    try:
        hopper = importlib.import_module("attn_kernels.kernels.hopper")
    except (ImportError, AttributeError):  # Gluon is experimental: its names come and go
        return None
    return hopper if hopper.serves(device) else None


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """One kernel: the Hopper kernel if the config has descriptors and the layer allows it."""
    group = bind_group(plan, layer)
    if plan.config.descriptors:
        hopper = hopper_kernel(plan.device)
        if hopper is not None and hopper.why_not(plan, layer) is None:
            return (hopper.bind(plan, layer, group),)
    arguments, const, options = common(plan, layer)
    block_q = const.block_m // const.heads
    head_splits = -(-plan.model.queries_per_kv // const.heads)

    def programs(plan: Plan) -> tuple[int, int, int]:
        heads = group(plan)
        return q_blocks_bound(plan, block_q) * heads, plan.model.num_kv_heads // heads, head_splits

    return (Launch(qblock_kernel, programs, (*arguments, OfPlan(group), const), options),)
