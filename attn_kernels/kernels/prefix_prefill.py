"""Prefix prefill: one query head and one block of a sequence's queries per program.

The first Triton attention of vLLM, for chunked prefill: context from the paged cache, then the new tokens
from contiguous K and V where these are given ("Enabling vLLM V1 on AMD GPUs With Triton", phase 1). A group's
query heads each load their KV head again.
"""

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Launch, Layer, OfLayer, Plan, always
from attn_kernels.kernels.arguments import JIT_OPTIONS, Specialisation, common
from attn_kernels.kernels.attend import attend
from attn_kernels.kernels.compile_params import Cache, Keys, Rows, Scoring
from attn_kernels.kernels.rows import (
    attend_cache,
    first_key,
    first_tile,
    load_rows,
    load_scales,
    place,
    store_rows,
)

HEADS = 1  # of one program
SHORTEST_QUERY = 1  # of the sequences that the variant leaves to the kernel: all


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
    k_new_ptr,
    v_new_ptr,
    stride_k_new_token,
    stride_k_new_head,
    stride_v_new_token,
    stride_v_new_head,
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
    block = place(cu_seqlens_q_ptr, seqused_k_ptr, seq, query_block, kv_head, head, const)
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
    rows = load_rows(q_ptr, stride_q_token, stride_q_head, block, scoring, const)
    start = first_tile(rows.first_position, window, const)
    stop = rows.last_position + 1
    cached = stop if k_new_ptr is None else block.context_len
    acc, row_max, row_sum = attend_cache(block, rows, cache, scoring, scales, start, cached, True, const)
    if k_new_ptr is not None:
        # The new tokens' keys are counted from 0, and so are the positions of their queries.
        unit: tl.constexpr = const.query_unit
        first = block.first_token - block.first_query
        keys = Keys(
            None,
            k_new_ptr + (first * stride_k_new_token + block.kv_head * stride_k_new_head) * unit,
            v_new_ptr + (first * stride_v_new_token + block.kv_head * stride_v_new_head) * unit,
            None,
            stride_k_new_token * unit,
            None,
            stride_v_new_token * unit,
            first_key(rows.first_position - block.context_len, window, const),
            stop - 1 - block.context_len,
        )
        rows = Rows(
            rows.q,
            rows.positions - block.context_len,
            rows.first_position - block.context_len,
            rows.last_position - block.context_len,
            rows.slopes,
        )
        start = first_tile(rows.first_position, window, const)
        stop -= block.context_len
        acc, row_max, row_sum = attend(acc, row_max, row_sum, rows, keys, scoring, start, stop, const)
    store_rows(out_ptr, stride_out_token, stride_out_head, block, acc / row_sum[:, None], const)


def specialise(config: Config, queries_per_kv: int) -> tuple[Specialisation, ...]:
    return (specialise_prefill(SHORTEST_QUERY),)


def specialise_prefill(shortest_query: int) -> Specialisation:
    return Specialisation(prefix_prefill_kernel, heads=HEADS, constants={"SHORTEST_QUERY": shortest_query})


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    """One kernel for all sequences."""
    return (bind_prefill(plan, layer, SHORTEST_QUERY),)


def bind_prefill(
    plan: Plan, layer: Layer, shortest_query: int, needed: Callable[[Plan], bool] = always
) -> Launch:
    """The launch for the sequences of at least ``shortest_query`` query tokens."""
    arguments, const, options = common(plan, layer, heads=HEADS)
    new: tuple[Any, ...] = (None, None, 0, 0, 0, 0)
    if layer.k_new is not None and layer.v_new is not None:
        strides = (*layer.k_new.stride()[:2], *layer.v_new.stride()[:2])
        new = (OfLayer("k_new"), OfLayer("v_new"), *(n // const.query_unit for n in strides))
    rows = const.block_m

    def programs(plan: Plan) -> tuple[int, int]:
        return -(-plan.max_query_len // rows) * plan.num_seqs, plan.model.num_query_heads

    arguments = (*arguments, *new, shortest_query, const)
    return Launch(prefix_prefill_kernel, programs, arguments, options, needed)
