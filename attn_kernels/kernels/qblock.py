"""The Q-Block kernel: unified paged attention for prefill, chunked prefill, decode and their mixtures.

One program computes one Q-Block: ``BLOCK_M`` rows = consecutive query tokens of one sequence times the query
heads that share one KV head ("The Anatomy of a Triton Attention Kernel", arXiv 2511.11581, section 4.4 and
appendix B). The tile of keys is independent of the page size (section 4.6).
"""

import math
from functools import lru_cache

import triton
import triton.language as tl
from torch import Tensor

from attn_kernels.config import LaunchConfig
from attn_kernels.kernels.device import (
    accumulate,
    find_sequence,
    load_columns,
    load_page_ids,
    row_mask,
    tile_pointers,
)
from attn_kernels.structures import Plan

LOG2_E = 1.4426950408889634
VECTOR_ELEMENTS = 8  # two-byte elements in a 16-byte access
L2_BYTES = 24 * 2**20  # what K and V of the heads in flight may fill, of the 40 MB (A100) or more of a GPU

# None of these may recompile the kernel from step to step or from model to model: strides come in units of
# QUERY_UNIT or CACHE_UNIT elements, which is all that a wide load needs to know of them.
RUNTIME_INTS = (
    "num_seqs",
    "heads_per_group",
    "stride_q_token",
    "stride_q_head",
    "stride_out_token",
    "stride_out_head",
    "stride_k_page",
    "stride_k_slot",
    "stride_k_head",
    "stride_v_page",
    "stride_v_slot",
    "stride_v_head",
    "stride_table",
)
INDEX_POINTERS = ("block_table_ptr", "cu_seqlens_q_ptr", "seqused_k_ptr")


@triton.jit(do_not_specialize=RUNTIME_INTS, do_not_specialize_on_alignment=INDEX_POINTERS)
def qblock_kernel(
    out_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    block_table_ptr,
    cu_seqlens_q_ptr,
    seqused_k_ptr,
    scale_log2,
    num_seqs,
    heads_per_group,
    stride_q_token,
    stride_q_head,
    stride_out_token,
    stride_out_head,
    stride_k_page,
    stride_k_slot,
    stride_k_head,
    stride_v_page,
    stride_v_slot,
    stride_v_head,
    stride_table,
    QUERIES_PER_KV: tl.constexpr,
    HEAD_SIZE: tl.constexpr,
    HEAD_PADDED: tl.constexpr,
    PAGE_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    TILE_SIZE: tl.constexpr,
    QUERY_UNIT: tl.constexpr,
    CACHE_UNIT: tl.constexpr,
    SAME_KV_STRIDES: tl.constexpr,
    NUM_STAGES: tl.constexpr,
):
    HEADS: tl.constexpr = min(QUERIES_PER_KV, BLOCK_M)  # query heads that one program covers
    BLOCK_Q: tl.constexpr = BLOCK_M // HEADS
    MASKED_STAGES: tl.constexpr = min(NUM_STAGES, 2)  # the masked loop is short: deeper only costs code
    # Longest first: the grid counts down, so a sequence's last queries, which see most keys, start early.
    num_q_blocks = tl.num_programs(0) // heads_per_group
    q_block = num_q_blocks - 1 - tl.program_id(0) // heads_per_group
    kv_head = (tl.program_id(1) * heads_per_group + tl.program_id(0) % heads_per_group).to(tl.int64)

    seq = find_sequence(cu_seqlens_q_ptr, num_seqs, q_block, BLOCK_Q)
    seq_start = tl.load(cu_seqlens_q_ptr + seq)
    query_len = tl.load(cu_seqlens_q_ptr + seq + 1) - seq_start
    first_query = (q_block - (seq_start // BLOCK_Q + seq)) * BLOCK_Q
    if first_query >= query_len:
        return
    context_len = tl.load(seqused_k_ptr + seq) - query_len
    last_key = context_len + tl.minimum(first_query + BLOCK_Q, query_len) - 1

    rows = tl.arange(0, BLOCK_M)
    columns = tl.arange(0, HEAD_PADDED)
    # Rows are (query token, query head of the group), heads fastest.
    first_token = (seq_start + first_query).to(tl.int64)
    first_head = kv_head * QUERIES_PER_KV + tl.program_id(2) * HEADS
    num_rows = tl.minimum(query_len - first_query, BLOCK_Q) * HEADS
    row_valid = rows < num_rows
    if QUERIES_PER_KV > HEADS:
        row_valid = row_valid & (tl.program_id(2) * HEADS + rows % HEADS < QUERIES_PER_KV)
    q_mask = row_mask(row_valid, HEAD_SIZE, HEAD_PADDED)
    q_ptr += (first_token * stride_q_token + first_head * stride_q_head) * QUERY_UNIT
    row_offsets = ((rows // HEADS) * stride_q_token + (rows % HEADS) * stride_q_head) * QUERY_UNIT
    q = tl.load(q_ptr + (row_offsets[:, None] + columns[None, :]), mask=q_mask, other=0.0)

    k_page = stride_k_page.to(tl.int64) * CACHE_UNIT
    k_slot = stride_k_slot * CACHE_UNIT
    k_head_ptr = k_ptr + kv_head * stride_k_head * CACHE_UNIT
    v_page = stride_v_page.to(tl.int64) * CACHE_UNIT
    v_slot = stride_v_slot * CACHE_UNIT
    v_head_ptr = v_ptr + kv_head * stride_v_head * CACHE_UNIT
    if SAME_KV_STRIDES:
        v_page = k_page
        v_slot = k_slot

    row_max = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_PADDED], dtype=tl.float32)

    # Tiles that every row sees whole, without any mask. Page ids are fetched one tile ahead of K and V.
    table_row_ptr = block_table_ptr + seq.to(tl.int64) * stride_table
    full_end = (context_len + first_query + 1) // TILE_SIZE * TILE_SIZE
    page_ids = load_page_ids(table_row_ptr, 0, last_key, TILE_SIZE, PAGE_SIZE)
    for start in tl.range(0, full_end, TILE_SIZE, num_stages=NUM_STAGES):
        k_ptrs = tile_pointers(k_head_ptr, page_ids, start, k_page, k_slot, TILE_SIZE, PAGE_SIZE, HEAD_PADDED)
        v_ptrs = tile_pointers(v_head_ptr, page_ids, start, v_page, v_slot, TILE_SIZE, PAGE_SIZE, HEAD_PADDED)
        page_ids = load_page_ids(table_row_ptr, start + TILE_SIZE, last_key, TILE_SIZE, PAGE_SIZE)
        k = load_columns(k_ptrs, HEAD_SIZE, HEAD_PADDED)
        v = load_columns(v_ptrs, HEAD_SIZE, HEAD_PADDED)
        scores = tl.dot(q, tl.trans(k))
        acc, row_max, row_sum = accumulate(scores, v, acc, row_max, row_sum, scale_log2)

    # The diagonal and the end. Masked V is zero, since a zero weight does not hide a NaN beyond the end.
    keys = tl.arange(0, TILE_SIZE)
    row_limit = context_len + first_query + rows // HEADS
    page_ids = load_page_ids(table_row_ptr, full_end, last_key, TILE_SIZE, PAGE_SIZE)
    for start in tl.range(full_end, last_key + 1, TILE_SIZE, num_stages=MASKED_STAGES):
        k_ptrs = tile_pointers(k_head_ptr, page_ids, start, k_page, k_slot, TILE_SIZE, PAGE_SIZE, HEAD_PADDED)
        v_ptrs = tile_pointers(v_head_ptr, page_ids, start, v_page, v_slot, TILE_SIZE, PAGE_SIZE, HEAD_PADDED)
        page_ids = load_page_ids(table_row_ptr, start + TILE_SIZE, last_key, TILE_SIZE, PAGE_SIZE)
        k = load_columns(k_ptrs, HEAD_SIZE, HEAD_PADDED)
        v_mask = row_mask(keys <= last_key - start, HEAD_SIZE, HEAD_PADDED)
        v = tl.load(v_ptrs, mask=v_mask, other=0.0)
        scores = tl.dot(q, tl.trans(k))
        scores = tl.where(keys[None, :] <= (row_limit - start)[:, None], scores, float("-inf"))
        acc, row_max, row_sum = accumulate(scores, v, acc, row_max, row_sum, scale_log2)

    acc = acc / row_sum[:, None]
    out_ptr += (first_token * stride_out_token + first_head * stride_out_head) * QUERY_UNIT
    row_offsets = ((rows // HEADS) * stride_out_token + (rows % HEADS) * stride_out_head) * QUERY_UNIT
    out_ptrs = out_ptr + (row_offsets[:, None] + columns[None, :])
    tl.store(out_ptrs, acc.to(out_ptr.dtype.element_ty), mask=q_mask)


def compile_time_constants(
    config: LaunchConfig,
    *,
    head_size: int,
    block_size: int,
    queries_per_kv: int,
    query_unit: int = VECTOR_ELEMENTS,
    cache_unit: int = VECTOR_ELEMENTS,
    same_kv_strides: bool = True,
) -> dict[str, int | bool]:
    """The kernel's constexpr arguments: what a launch and an offline compilation have in common."""
    return {
        "QUERIES_PER_KV": queries_per_kv,
        "HEAD_SIZE": head_size,
        "HEAD_PADDED": max(16, triton.next_power_of_2(head_size)),
        "PAGE_SIZE": block_size,
        "BLOCK_M": config.block_m,
        "TILE_SIZE": config.tile_size,
        "QUERY_UNIT": query_unit,
        "CACHE_UNIT": cache_unit,
        "SAME_KV_STRIDES": same_kv_strides,
        "NUM_STAGES": config.num_stages,
    }


def compile_options(config: LaunchConfig) -> dict[str, int | bool]:
    """Triton's own options. Fusing multiply-adds is named because Triton's default for it is to change."""
    return {"num_warps": config.num_warps, "num_stages": config.num_stages, "enable_fp_fusion": True}


def heads_per_group(num_kv_heads: int, head_bytes: int, one_block_per_sequence: bool) -> int:
    """How many KV heads run side by side; the groups of heads run one after the other.

    All of them, so that the longest Q-Blocks of all heads start first, unless several Q-Blocks read the
    same keys and values again and those of all heads (``head_bytes`` each) would not stay in the L2 cache.
    """
    if one_block_per_sequence or num_kv_heads * head_bytes <= L2_BYTES:
        return num_kv_heads
    fitting = max(1, min(num_kv_heads, L2_BYTES // head_bytes))
    return next(size for size in range(fitting, 0, -1) if num_kv_heads % size == 0)


@lru_cache(maxsize=4096)
def _specialise(
    config: LaunchConfig,
    head_size: int,
    block_size: int,
    queries_per_kv: int,
    query_strides: tuple[int, ...],
    cache_strides: tuple[int, ...],
) -> tuple[tuple[int, ...], dict[str, int | bool]]:
    """Strides in their units, and the constants and options: the same for all layers and most steps."""
    query_unit = math.gcd(VECTOR_ELEMENTS, *query_strides)
    cache_unit = math.gcd(VECTOR_ELEMENTS, *cache_strides)
    strides = (*(n // query_unit for n in query_strides), *(n // cache_unit for n in cache_strides))
    constants = compile_time_constants(
        config,
        head_size=head_size,
        block_size=block_size,
        queries_per_kv=queries_per_kv,
        query_unit=query_unit,
        cache_unit=cache_unit,
        same_kv_strides=cache_strides[:3] == cache_strides[3:],
    )
    return strides, constants | compile_options(config)


def launch(
    plan: Plan, q: Tensor, k_cache: Tensor, v_cache: Tensor, out: Tensor, softmax_scale: float
) -> None:
    """Launch the kernel with ``plan.config``; the arguments were checked by ``run``."""
    config, queries_per_kv, num_kv_heads = plan.config, plan.queries_per_kv, plan.num_kv_heads
    heads = min(queries_per_kv, config.block_m)
    block_q = config.block_m // heads
    head_bytes = 2 * plan.max_seq_len * plan.head_size * k_cache.element_size()
    group = heads_per_group(num_kv_heads, head_bytes, plan.max_query_len <= block_q)
    num_q_blocks = plan.num_query_tokens // block_q + plan.num_seqs  # an upper bound
    grid = (num_q_blocks * group, num_kv_heads // group, -(-queries_per_kv // heads))
    strides, constants = _specialise(
        config,
        plan.head_size,
        plan.block_size,
        queries_per_kv,
        q.stride()[:2] + out.stride()[:2],
        k_cache.stride()[:3] + v_cache.stride()[:3],
    )
    qblock_kernel[grid](
        out,
        q,
        k_cache,
        v_cache,
        plan.block_table,
        plan.cu_seqlens_q,
        plan.seqused_k,
        softmax_scale * LOG2_E,
        plan.num_seqs,
        group,
        *strides,
        plan.block_table.stride(0),
        **constants,
    )
