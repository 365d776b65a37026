"""The Q-Block kernel for prefill on Hopper: TMA, asynchronous wgmma and specialised warps, in Gluon.

``qblock`` launches it for ``descriptors`` = 1 where it can. Each program computes a Q-Block, as in
``qblock``. Its ``BLOCK_M`` rows are consecutive query tokens of one sequence times the query heads that share
one KV head. One warp copies keys and values through TMA into a ring in shared memory. Two warpgroups compute
64 rows each. A warpgroup multiplies the values of a tile while it computes the softmax of the next
(FlashAttention-3, arXiv 2407.08608, section 3.2). The tiles run from the last, which holds the diagonal, to
the first.
"""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Described, Launch, Layer, OfLayer, OfPlan, Plan
from attn_kernels.kernels.arguments import (
    BLOCK_TABLE,
    CU_SEQLENS_Q,
    LOG2_E,
    NUM_SEQS,
    SEQUSED_K,
    STRIDE_TABLE,
)
from attn_kernels.kernels.hopper_device import COLUMNS, GROUP_ROWS, UNIT, consume, find_sequence, produce

BLOCK_M = gl.constexpr(128)
LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)  # of a box
HEAD_SIZES = (64, 128, 256)
SHARED_BYTES = 232448  # shared memory that a block may have on Hopper
BARRIER_BYTES = 1024  # at most, with padding
REGISTERS = 240  # of a computing thread
WARPS = 4  # of a computing warpgroup; Triton adds the others

# Integers that never specialise the kernel, so that no step and no other model compiles it again.
RUNTIME_INTS = (
    "num_seqs",
    "heads_per_group",
    "stride_q_token",
    "stride_q_head",
    "stride_out_token",
    "stride_out_head",
    "stride_table",
    "k_page_rows",
    "k_head_rows",
    "k_head_columns",
    "v_page_rows",
    "v_head_rows",
    "v_head_columns",
)
INDEX_POINTERS = ("block_table_ptr", "cu_seqlens_q_ptr", "seqused_k_ptr")


@gluon.jit(do_not_specialize=RUNTIME_INTS, do_not_specialize_on_alignment=INDEX_POINTERS)
def hopper_kernel(
    out_ptr,
    q_ptr,
    k_desc,
    v_desc,
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
    stride_table,
    k_page_rows,
    k_head_rows,
    k_head_columns,
    v_page_rows,
    v_head_rows,
    v_head_columns,
    HEADS: gl.constexpr,
    HEAD_SIZE: gl.constexpr,
    PAGE_SIZE: gl.constexpr,
    BOX: gl.constexpr,
    TILE_SIZE: gl.constexpr,
    STAGES: gl.constexpr,
    REGISTERS: gl.constexpr,
):
    BLOCK_Q: gl.constexpr = BLOCK_M // HEADS
    # Longest first: the grid counts down, so a sequence's last queries, which see most keys, start early.
    num_q_blocks = gl.num_programs(0) // heads_per_group
    q_block = num_q_blocks - 1 - gl.program_id(0) // heads_per_group
    kv_head = gl.program_id(1) * heads_per_group + gl.program_id(0) % heads_per_group
    base = gl.load(cu_seqlens_q_ptr)
    seq = find_sequence(cu_seqlens_q_ptr, num_seqs, q_block, base, BLOCK_Q)
    seq_start = gl.load(cu_seqlens_q_ptr + seq)
    query_len = gl.load(cu_seqlens_q_ptr + seq + 1) - seq_start
    first_query = (q_block - ((seq_start - base) // BLOCK_Q + seq)) * BLOCK_Q
    if first_query >= query_len:
        return
    num_keys = gl.load(seqused_k_ptr + seq)
    num_queries = gl.minimum(query_len - first_query, BLOCK_Q)
    first_limit = num_keys - query_len + first_query  # the last key that the first query sees
    last_key = first_limit + num_queries - 1
    num_tiles = last_key // TILE_SIZE + 1

    layout: gl.constexpr = k_desc.layout
    q_smem = gl.allocate_shared_memory(k_desc.dtype, [2, GROUP_ROWS, HEAD_SIZE], layout)
    k_smem = gl.allocate_shared_memory(k_desc.dtype, [STAGES, TILE_SIZE, HEAD_SIZE], layout)
    v_smem = gl.allocate_shared_memory(k_desc.dtype, [STAGES, TILE_SIZE, HEAD_SIZE], layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=2)
    fence_async_shared()

    first_token = (seq_start + first_query).to(gl.int64)
    first_head = kv_head * HEADS
    q_ptr += (first_token * stride_q_token + first_head * stride_q_head) * UNIT
    out_ptr += (first_token * stride_out_token + first_head * stride_out_head) * UNIT
    row_ptr = block_table_ptr + seq.to(gl.int64) * stride_table
    k_place = (k_page_rows, kv_head * k_head_rows, kv_head * k_head_columns)
    v_place = (v_page_rows, kv_head * v_head_rows, kv_head * v_head_columns)
    strides = (stride_q_token, stride_q_head, stride_out_token, stride_out_head)
    ring = (k_smem, v_smem, full, empty)
    block = (num_queries * HEADS, num_tiles, num_keys, first_limit)
    gl.warp_specialize(
        [
            (consume, (0, q_ptr, out_ptr, strides, q_smem.index(0), ring, block, scale_log2, HEADS)),
            (consume, (1, q_ptr, out_ptr, strides, q_smem.index(1), ring, block, scale_log2, HEADS)),
            (produce, (k_desc, v_desc, k_place, v_place, ring, row_ptr, num_tiles, last_key, PAGE_SIZE)),
        ],
        [4, 1],
        [REGISTERS, 504 - 2 * REGISTERS],  # 504 = 3 x 168, what three warpgroups start with
    )


def cache_view(cache: Tensor, box: int) -> tuple[TensorDescriptor, tuple[int, int, int]]:
    """A cache as a matrix whose rows hold slots, and steps in it: rows a page, rows a head, columns a head.

    Either the heads of a slot lie beside each other in a row, or the slots of one head follow those of
    another.
    """
    num_blocks, page_size, num_heads, head_size = cache.shape
    page_stride, slot_stride, head_stride, _ = cache.stride()
    if slot_stride >= num_heads * head_stride:
        head_rows, head_columns = 0, head_stride
    else:
        head_rows, head_columns = head_stride // slot_stride, 0
    page_rows = page_stride // slot_stride
    num_rows = (num_blocks - 1) * page_rows + (num_heads - 1) * head_rows + page_size
    num_columns = (num_heads - 1) * head_columns + head_size
    view = TensorDescriptor(cache, [num_rows, num_columns], [slot_stride, 1], [box, COLUMNS.value], LAYOUT)
    return view, (page_rows, head_rows, head_columns)


def constants(config: Config, head_size: int, block_size: int, heads: int) -> dict[str, int]:
    """The kernel's compile-time arguments, of a launch and of an offline compilation alike."""
    return {
        "HEADS": heads,
        "HEAD_SIZE": head_size,
        "PAGE_SIZE": block_size,
        "BOX": min(block_size & -block_size, config.tile_size),
        "TILE_SIZE": config.tile_size,
        "STAGES": config.num_stages,
        "REGISTERS": REGISTERS,
    }


def why_not_shape(config: Config, head_size: int, block_size: int, queries_per_kv: int) -> str | None:
    """Return why the kernel cannot compute a layer of this shape; None if it can."""
    if head_size not in HEAD_SIZES:
        return f"the head size is {head_size}, not one of {HEAD_SIZES}"
    if queries_per_kv > BLOCK_M.value:
        return f"more than {BLOCK_M.value} query heads share a KV head"
    if block_size % 16:
        return f"the page size is {block_size}, not a multiple of 16"
    shared = 2 * head_size * (BLOCK_M.value + 2 * config.num_stages * config.tile_size) + BARRIER_BYTES
    if shared > SHARED_BYTES:
        return f"{config} needs {shared} bytes of shared memory, more than {SHARED_BYTES}"
    return None


def why_not(plan: Plan, layer: Layer) -> str | None:
    """Return why the kernel cannot compute this layer; None if it can."""
    q, out, k_cache, v_cache = layer.q, layer.out, layer.k_cache, layer.v_cache
    if k_cache.dtype != q.dtype:
        return "the caches have another dtype than q"
    if layer.sliding_window is not None or layer.softcap:
        return "there is a sliding window or a soft cap"
    if layer.alibi_slopes is not None or layer.sinks is not None:
        return "there are ALiBi slopes or sinks"
    if isinstance(layer.k_scale, Tensor) or isinstance(layer.v_scale, Tensor) or layer.v_scale != 1.0:
        return "the cached keys or values are scaled"
    if any(tensor.data_ptr() % 16 for tensor in (q, out, k_cache, v_cache)):
        return "a tensor does not begin at a multiple of 16 bytes"
    why = why_not_shape(plan.config, plan.model.head_size, plan.model.block_size, plan.model.queries_per_kv)
    return why or why_not_strides(
        q.stride(),
        out.stride(),
        k_cache.stride(),
        v_cache.stride(),
        k_cache.shape[0],
        plan.model.num_kv_heads,
    )


@lru_cache(maxsize=4096)
def why_not_strides(
    q: tuple[int, ...],
    out: tuple[int, ...],
    k_cache: tuple[int, ...],
    v_cache: tuple[int, ...],
    num_blocks: int,
    num_kv_heads: int,
) -> str | None:
    """Return why tensors of these strides cannot be read through descriptors; None if they can."""
    for *strides, last in (q, out, k_cache, v_cache):
        if last != 1 or any(stride % UNIT.value for stride in strides):
            return "a tensor's rows are not multiples of 16 bytes apart"
    for page_stride, slot_stride, head_stride, _ in (k_cache, v_cache):
        beside = slot_stride >= num_kv_heads * head_stride
        if slot_stride == 0 or page_stride % slot_stride or not (beside or head_stride % slot_stride == 0):
            return "a cache's pages or heads are not a whole number of slots apart"
        if num_blocks * page_stride // slot_stride >= 2**31:
            return "a cache has 2^31 slots or more"
    return None


def bind(plan: Plan, layer: Layer, group: Callable[[Plan], int]) -> Launch:
    """The launch for layers like this one, for which ``why_not`` returns None.

    group: as ``qblock.bind_group`` makes it.
    """
    q, out = layer.q, layer.out
    heads = plan.model.queries_per_kv
    block_q = BLOCK_M.value // heads
    chosen = constants(plan.config, plan.model.head_size, plan.model.block_size, heads)
    box = chosen["BOX"]
    assert not isinstance(layer.k_scale, Tensor)

    def describe(cache: Tensor) -> TensorDescriptor:
        return cache_view(cache, box)[0]

    def programs(plan: Plan) -> tuple[int, int]:
        num_q_blocks = plan.num_query_tokens // block_q + plan.num_seqs  # an upper bound
        return num_q_blocks * group(plan), plan.model.num_kv_heads // group(plan)

    arguments = (
        OfLayer("out"),
        OfLayer("q"),
        Described("k_cache", describe),
        Described("v_cache", describe),
        BLOCK_TABLE,
        CU_SEQLENS_Q,
        SEQUSED_K,
        layer.softmax_scale * layer.k_scale * LOG2_E,
        NUM_SEQS,
        OfPlan(group),
        *(stride // UNIT.value for stride in q.stride()[:2] + out.stride()[:2]),
        STRIDE_TABLE,
        *cache_view(layer.k_cache, box)[1],
        *cache_view(layer.v_cache, box)[1],
        *chosen.values(),
    )
    return Launch(hopper_kernel, programs, arguments, {"num_warps": WARPS})


def serves(device: torch.device) -> bool:
    """Return whether a device is a Hopper GPU."""
    return (
        device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) == (9, 0)
    )
