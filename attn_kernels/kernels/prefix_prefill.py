"""Prefix prefill: one program for each query head and block of a sequence's query tokens.

This was the first Triton attention of vLLM, for chunked prefill ("Enabling vLLM V1 on AMD GPUs With Triton",
phase 1). Every query head loads its KV head again.
"""

from collections.abc import Callable

import triton
import triton.language as tl

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan, always
from attn_kernels.kernels.arguments import JIT_OPTIONS, Specialisation, common_arguments
from attn_kernels.kernels.compile_params import PagedCache, Scoring
from attn_kernels.kernels.query_tile import attend_and_store, load_scales, make_q_block
from attn_kernels.kernels.variant import ConfigGrid, Variant

HEADS = 1  # query heads of one program
SHORTEST_QUERY = 1  # query tokens: the kernel computes all sequences


@triton.jit(**JIT_OPTIONS)
def prefix_prefill_kernel(
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
    SHORTEST_QUERY: tl.constexpr,
    const: tl.constexpr,
):
    # Longest first: a sequence's last queries see most keys.
    seq = tl.program_id(0) % num_seqs
    query_block = tl.num_programs(0) // num_seqs - 1 - tl.program_id(0) // num_seqs
    query_len = tl.load(cu_seqlens_q_ptr + seq + 1) - tl.load(cu_seqlens_q_ptr + seq)
    if query_len < SHORTEST_QUERY or query_block * const.block_m >= query_len:
        return
    kv_head = tl.program_id(1) // const.queries_per_kv
    head = tl.program_id(1) % const.queries_per_kv
    block = make_q_block(cu_seqlens_q_ptr, seqused_k_ptr, seq, query_block, kv_head, head, const.block_q)
    scoring = Scoring(factor, cap, window, slopes_ptr, sinks_ptr)
    scales = load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr)
    k = (k_ptr, stride_k_page, stride_k_slot, stride_k_head)
    v = (v_ptr, stride_v_page, stride_v_slot, stride_v_head)
    cache = PagedCache(block_table_ptr, stride_table, k, v)
    q = (q_ptr, stride_q_token, stride_q_head)
    out = (out_ptr, stride_out_token, stride_out_head)
    attend_and_store(q, out, block, cache, scoring, scales, const)


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    return (specialise_prefill(SHORTEST_QUERY),)


def specialise_prefill(shortest_query: int) -> Specialisation:
    return Specialisation(prefix_prefill_kernel, heads=HEADS, constants={"SHORTEST_QUERY": shortest_query})


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    return (bind_prefill(plan, layer, SHORTEST_QUERY),)


def bind_prefill(
    plan: Plan, layer: Layer, shortest_query: int, needed: Callable[[Plan], bool] = always
) -> Launch:
    """The launch that computes the sequences of at least ``shortest_query`` query tokens."""
    arguments, const, options = common_arguments(plan, layer, heads=HEADS)
    block_m = const.block_m

    def programs(plan: Plan) -> tuple[int, int]:
        return -(-plan.max_query_len // block_m) * plan.num_seqs, plan.model.num_query_heads

    arguments = (*arguments, shortest_query, const)
    return Launch(prefix_prefill_kernel, programs, arguments, options, needed)


VARIANT = Variant(
    name="prefix_prefill",
    kernels=(prefix_prefill_kernel,),
    bind=bind,
    specialise=specialise,
    one_head=True,
    samples=(Config("prefix_prefill", block_m=64, tile_size=32),),
    grids=(
        ConfigGrid(M=(16,), T=(64,), W=(4,), S=(2, 3)),
        ConfigGrid(M=(64,), T=(32, 64), W=(4,), S=(2, 3)),
        ConfigGrid(M=(128,), T=(32, 64, 128), W=(4, 8), S=(3,)),
    ),
)
