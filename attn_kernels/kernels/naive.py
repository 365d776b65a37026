"""The naive kernel: one program for each query token and head, the baseline of every comparison.

"The Anatomy of a Triton Attention Kernel", arXiv 2511.11581, listing 3. It multiplies and sums without matrix
instructions, and every query head loads its KV head again. Unlike there, the tile size is a parameter.
"""

import triton
import triton.language as tl

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels.arguments import JIT_OPTIONS, Specialisation, common_arguments
from attn_kernels.kernels.compile_params import PagedCache, Scoring
from attn_kernels.kernels.query_tile import attend_and_store, load_scales, make_q_block, search
from attn_kernels.kernels.variant import ConfigGrid, Variant

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
    if query < 0:  # a token before the first sequence
        return
    kv_head = tl.program_id(1) // const.queries_per_kv
    head = tl.program_id(1) % const.queries_per_kv
    block = make_q_block(cu_seqlens_q_ptr, seqused_k_ptr, seq, query, kv_head, head, const.block_q)
    scoring = Scoring(factor, cap, window, slopes_ptr, sinks_ptr)
    scales = load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr)
    k = (k_ptr, stride_k_page, stride_k_slot, stride_k_head)
    v = (v_ptr, stride_v_page, stride_v_slot, stride_v_head)
    cache = PagedCache(block_table_ptr, stride_table, k, v)
    q = (q_ptr, stride_q_token, stride_q_head)
    out = (out_ptr, stride_out_token, stride_out_head)
    attend_and_store(q, out, block, cache, scoring, scales, const)


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    return (Specialisation(naive_kernel, heads=HEADS),)


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    arguments, const, options = common_arguments(plan, layer, heads=HEADS)

    def programs(plan: Plan) -> tuple[int, int]:
        return plan.num_query_tokens, plan.model.num_query_heads

    return (Launch(naive_kernel, programs, (*arguments, const), options),)


VARIANT = Variant(
    name="naive",
    kernels=(naive_kernel,),
    bind=bind,
    specialise=specialise,
    one_row=True,
    one_head=True,
    samples=(Config("naive", block_m=1, tile_size=32),),
    grids=(ConfigGrid(M=(1,), T=(32,), W=(2, 4), S=(2,)), ConfigGrid(M=(1,), T=(64, 128), W=(4,), S=(2,))),
)
