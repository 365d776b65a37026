"""Split: a decode kernel for sequences of one query token, and a prefill kernel for all others.

"Enabling vLLM V1 on AMD GPUs With Triton", phases 1 and 2. In decode, one program computes all query heads of
a KV head. In prefill, it computes a block of query tokens of one head, so every query head loads its KV head
again.
"""

import triton
import triton.language as tl

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, Plan
from attn_kernels.kernels.arguments import JIT_OPTIONS, Specialisation, common_arguments
from attn_kernels.kernels.compile_params import PagedCache, Scoring
from attn_kernels.kernels.query_tile import attend_and_store, load_scales, make_q_block
from attn_kernels.kernels.variant import ConfigGrid, Variant

MIN_ROWS = 16  # of a matrix instruction
MAX_HEADS = 64  # query heads of one program
PREFILL_HEADS = 1  # query heads of one program


@triton.jit(**JIT_OPTIONS)
def prefill_kernel(
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
    # Longest first: a sequence's last queries see most keys.
    seq = tl.program_id(0) % num_seqs
    query_block = tl.num_programs(0) // num_seqs - 1 - tl.program_id(0) // num_seqs
    query_len = tl.load(cu_seqlens_q_ptr + seq + 1) - tl.load(cu_seqlens_q_ptr + seq)
    if query_len <= 1 or query_block * const.block_m >= query_len:
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


@triton.jit(**JIT_OPTIONS)
def decode_kernel(
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
    seq = tl.program_id(0)
    if tl.load(cu_seqlens_q_ptr + seq + 1) - tl.load(cu_seqlens_q_ptr + seq) != 1:
        return
    head = tl.program_id(2) * const.heads
    block = make_q_block(cu_seqlens_q_ptr, seqused_k_ptr, seq, 0, tl.program_id(1), head, const.block_q)
    scoring = Scoring(factor, cap, window, slopes_ptr, sinks_ptr)
    scales = load_scales(k_scale, v_scale, k_scale_ptr, v_scale_ptr)
    k = (k_ptr, stride_k_page, stride_k_slot, stride_k_head)
    v = (v_ptr, stride_v_page, stride_v_slot, stride_v_head)
    cache = PagedCache(block_table_ptr, stride_table, k, v)
    q = (q_ptr, stride_q_token, stride_q_head)
    out = (out_ptr, stride_out_token, stride_out_head)
    attend_and_store(q, out, block, cache, scoring, scales, const)


def decode_tile(queries_per_kv: int) -> tuple[int, int]:
    heads = min(queries_per_kv, MAX_HEADS)
    return heads, max(MIN_ROWS, triton.next_power_of_2(heads))


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    heads, block_m = decode_tile(queries_per_kv)
    return Specialisation(prefill_kernel, PREFILL_HEADS), Specialisation(decode_kernel, heads, block_m)


def has_decode(plan: Plan) -> bool:
    """Return whether a sequence may have one query token: not if all have the same number above 1."""
    return (
        plan.max_query_len <= 1
        or plan.num_query_tokens != plan.num_seqs * plan.max_query_len
        or plan.for_capture
    )


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """Two launches, of which a batch needs one or both; ``block_m`` is that of the prefill kernel."""
    prefill_arguments, prefill_const, prefill_options = common_arguments(plan, layer, heads=PREFILL_HEADS)
    heads, block_m = decode_tile(plan.model.queries_per_kv)
    decode_arguments, decode_const, decode_options = common_arguments(
        plan, layer, heads=heads, block_m=block_m
    )

    def prefill_programs(plan: Plan) -> tuple[int, int]:
        return -(-plan.max_query_len // prefill_const.block_m) * plan.num_seqs, plan.model.num_query_heads

    def decode_programs(plan: Plan) -> tuple[int, int, int]:
        return plan.num_seqs, plan.model.num_kv_heads, decode_const.head_splits

    return (
        Launch(
            prefill_kernel,
            prefill_programs,
            (*prefill_arguments, prefill_const),
            prefill_options,
            lambda plan: plan.max_query_len > 1,
        ),
        Launch(decode_kernel, decode_programs, (*decode_arguments, decode_const), decode_options, has_decode),
    )


VARIANT = Variant(
    name="split",
    kernels=(prefill_kernel, decode_kernel),
    bind=bind,
    specialise=specialise,
    one_head=True,
    decode_rows=lambda queries_per_kv: decode_tile(queries_per_kv)[1],
    samples=(Config("split", block_m=64, tile_size=32),),
    grids=(ConfigGrid(M=(64,), T=(32, 64, 128), W=(4,), S=(2, 3)),),
)
