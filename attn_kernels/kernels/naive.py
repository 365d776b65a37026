"""The naive kernel: one query token and one query head per program, the baseline of every comparison.

"The Anatomy of a Triton Attention Kernel", arXiv 2511.11581, listing 3: products by multiplying and summing,
no matrix instruction, and every query head of a group loads its KV head again. The tile of keys is free here.
"""

import triton
import triton.language as tl

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels.arguments import JIT_OPTIONS, Specialisation, common
from attn_kernels.kernels.compile_params import Cache, Scoring
from attn_kernels.kernels.pages import search
from attn_kernels.kernels.rows import attend_and_store, load_scales, place

HEADS = 1  # of one program


@triton.jit(**JIT_OPTIONS)
def naive_kernel(
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
    const: tl.constexpr,
):
    token = tl.program_id(0)
    seq = search(cu_seqlens_q_ptr, num_seqs, token)
    query = token - tl.load(cu_seqlens_q_ptr + seq)
    kv_head = tl.program_id(1) // const.queries_per_kv
    head = tl.program_id(1) % const.queries_per_kv
    block = place(cu_seqlens_q_ptr, seqused_k_ptr, seq, query, kv_head, head, const)
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


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    return (Specialisation(naive_kernel, heads=HEADS),)


def programs(plan: Plan) -> tuple[int, int]:
    return plan.num_query_tokens, plan.model.num_query_heads


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """One kernel; ``block_m`` is 1."""
    arguments, const, options = common(plan, layer, heads=HEADS)
    return (Launch(naive_kernel, programs, (*arguments, const), options),)
