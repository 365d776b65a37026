"""The Hopper kernel: TMA, asynchronous wgmma and specialised warps, in Gluon, in persistent programs.

docs/kernels.md describes it. A program has two roles, ``hopper_prompts`` and ``hopper_decodes``: ``qblock``
launches the first, ``stream_k`` the second and ``pod`` both.
"""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from attn_kernels.core.structures import Described, Launch, Layer, OfLayer, OfPlan, Plan
from attn_kernels.kernels.arguments import (
    BLOCK_TABLE,
    JIT_OPTIONS,
    LOG2_E,
    NUM_SEQS,
    SEQUSED_K,
    STRIDE_TABLE,
    lse_arguments,
    multiprocessors,
)
from attn_kernels.kernels.hopper_decodes import consume_decodes
from attn_kernels.kernels.hopper_device import (
    COLUMNS,
    GROUP_ROWS,
    UNIT,
    Caches,
    Scoring,
    allocate_heads,
    barriers,
    mailbox,
)
from attn_kernels.kernels.hopper_limits import ROW_BYTES, constants, roles_of
from attn_kernels.kernels.hopper_prompt_copies import PROMPT_FIELDS, convert_values, produce_prompts
from attn_kernels.kernels.hopper_prompts import consume_prompts
from attn_kernels.kernels.hopper_q_blocks import allocate_repeats
from attn_kernels.kernels.hopper_shares import DECODE_FIELDS, clear_slots, produce_decodes
from attn_kernels.kernels.schedule import tiles_at

WARPS = 4  # of a computing warpgroup; Triton adds the others
LAUNCH_OPTIONS: dict[str, int | bool] = {"num_warps": WARPS, "enable_fp_fusion": True}  # as compile_options

OPTIONAL_TENSORS = ("alibi_slopes", "sinks", "k_scale", "v_scale", "lse")


@gluon.jit(**JIT_OPTIONS)
def hopper_kernel(
    out_ptr, q_ptr, k_desc, v_desc, k_tail_desc, v_tail_desc,
    slopes_ptr, sinks_ptr, k_scale_ptr, v_scale_ptr, lse_ptr,
    block_table_ptr, cu_decodes_ptr, seqused_k_ptr, schedule_ptr, counters_ptr, partial_ptr, max_ptr, sum_ptr,
    factor, cap, window, ahead, v_scale, num_splits, num_seqs, num_kv_heads, tiles_at,
    stride_q_token, stride_q_head, stride_out_token, stride_out_head, stride_lse, stride_table,
    k_page_rows, k_head_rows, k_head_columns, v_page_rows, v_head_rows, v_head_columns, const: gl.constexpr,
):  # fmt: skip
    TILE_SIZE: gl.constexpr = const.tile_size
    STAGES: gl.constexpr = const.stages
    RAW_STAGES: gl.constexpr = const.raw_stages
    DECODE_TILE: gl.constexpr = const.decode_tile
    WITH_PROMPTS: gl.constexpr = TILE_SIZE > 0
    WITH_SPLITS: gl.constexpr = num_splits is not None
    WITH_DECODES: gl.constexpr = DECODE_TILE > 0
    CONVERTS: gl.constexpr = RAW_STAGES > 0
    dtype: gl.constexpr = q_ptr.dtype.element_ty
    FP8: gl.constexpr = k_desc.dtype == gl.float8e4nv
    strides = (stride_q_token, stride_q_head, stride_out_token, stride_out_head)
    if k_scale_ptr is not None:
        factor *= gl.load(k_scale_ptr)
    if v_scale_ptr is not None:
        v_scale = gl.load(v_scale_ptr)
    scoring = Scoring(factor, cap, window, ahead, slopes_ptr, sinks_ptr, v_scale)
    k_steps = (k_page_rows, k_head_rows, k_head_columns)
    v_steps = (v_page_rows, v_head_rows, v_head_columns)
    caches = Caches(k_desc, v_desc, k_tail_desc, v_tail_desc, k_steps, v_steps, block_table_ptr, stride_table)
    if WITH_PROMPTS:
        WIDE: gl.constexpr = k_desc.block_shape[1]
        LINE: gl.constexpr = COLUMNS if CONVERTS else WIDE
        # Values are fp16 next to fp8 keys, and queries are fp8 numbers or sums of two.
        value_dtype: gl.constexpr = gl.float16 if CONVERTS else dtype
        q_smem = allocate_heads(4 if CONVERTS else 2, GROUP_ROWS, WIDE, k_desc.dtype, const)
        k_smem = allocate_heads(STAGES, TILE_SIZE, WIDE, k_desc.dtype, const)
        v_smem = allocate_heads(STAGES, TILE_SIZE, LINE, value_dtype, const)
        ring = (k_smem, v_smem, barriers(STAGES, 2 if CONVERTS else 1), barriers(STAGES, 2))
        mail = mailbox(PROMPT_FIELDS, 3 if CONVERTS else 2)
        signals = (mail, allocate_repeats())
        num_q_blocks, longest = gl.load(schedule_ptr + 2), gl.load(schedule_ptr + 4)
        tickets = (schedule_ptr, schedule_ptr + 6, num_q_blocks, gl.load(schedule_ptr + 5), longest)
        if WITH_SPLITS:
            partials = (partial_ptr, max_ptr, sum_ptr, num_splits, num_kv_heads * const.heads)
            splits = (gl.load(schedule_ptr + 3), num_splits)
        prompts = (tickets, num_kv_heads, splits if WITH_SPLITS else None, ahead)
    if CONVERTS:
        raw_v = allocate_heads(RAW_STAGES, TILE_SIZE, WIDE, k_desc.dtype, const)
        raw_ring = (raw_v, barriers(RAW_STAGES, 1), barriers(RAW_STAGES, 1))
    if WITH_DECODES:
        layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
        PARTS: gl.constexpr = (const.head_size + COLUMNS - 1) // COLUMNS
        ROWS: gl.constexpr = const.rows
        SLOTS: gl.constexpr = const.slots
        # Pairs of fp8 numbers become fp16.
        slot_dtype: gl.constexpr = gl.uint16 if FP8 else dtype
        decode_dtype: gl.constexpr = gl.float16 if FP8 else dtype
        decode_smem = gl.allocate_shared_memory(slot_dtype, [SLOTS, DECODE_TILE, COLUMNS], layout)
        decode_q_smem = gl.allocate_shared_memory(decode_dtype, [PARTS, ROWS, COLUMNS], layout)
        weight_smem = gl.allocate_shared_memory(decode_dtype, [ROWS, DECODE_TILE], layout)
        if const.head_size % COLUMNS > 0 and not FP8:
            clear_slots(decode_smem)
        decode_ring = (decode_smem, barriers(SLOTS, 1), barriers(SLOTS, 1))
        channel = (decode_ring, mailbox(DECODE_FIELDS, 1))
        decodes = (schedule_ptr + tiles_at, num_seqs, num_kv_heads, cu_decodes_ptr, seqused_k_ptr)
        fragments = (counters_ptr, partial_ptr, max_ptr, sum_ptr)
        smems = (decode_q_smem, weight_smem, decode_ring)
    rows = (q_ptr, out_ptr, strides, (lse_ptr, stride_lse), scoring, partials if WITH_SPLITS else None)
    fence_async_shared()
    # The first function runs in the warps that hold the kernel's arguments; they cost it no registers.
    if CONVERTS:
        gl.warp_specialize(
            [
                (convert_values, (raw_ring, ring, mail, window)),
                (consume_prompts, (0, rows, q_smem, ring, signals, const)),
                (consume_prompts, (1, rows, q_smem, ring, signals, const)),
                (produce_prompts, (caches, (ring, raw_ring), signals, prompts, window, const)),
            ],
            [4, 4, 1],
            [const.registers, const.registers, const.copy_registers],
        )
    elif not WITH_DECODES:
        gl.warp_specialize(
            [
                (consume_prompts, (0, rows, q_smem, ring, signals, const)),
                (consume_prompts, (1, rows, q_smem, ring, signals, const)),
                (produce_prompts, (caches, (ring, None), signals, prompts, window, const)),
            ],
            [4, 1],
            [const.registers, const.copy_registers],
        )
    elif not WITH_PROMPTS:
        gl.warp_specialize(
            [
                (consume_decodes, (rows, smems, channel[1], fragments, num_kv_heads, const)),
                (produce_decodes, (caches, channel, decodes, window, const)),
            ],
            [1],
            [const.copy_registers],
        )
    else:
        gl.warp_specialize(
            [
                (consume_decodes, (rows, smems, channel[1], fragments, num_kv_heads, const)),
                (consume_prompts, (0, rows, q_smem, ring, signals, const)),
                (consume_prompts, (1, rows, q_smem, ring, signals, const)),
                (produce_prompts, (caches, (ring, None), signals, prompts, window, const)),
                (produce_decodes, (caches, channel, decodes, window, const)),
            ],
            [4, 4, 1, 1],
            [const.registers, const.registers, const.copy_registers, const.copy_registers],
        )


def box_columns(head_size: int, element_size: int) -> tuple[int, int]:
    """Columns of the boxes that copy a head: of all but its last columns, and of those (0 if none remain).

    Both are powers of two. ``element_size``: bytes of a cache element.
    """
    wide = min(ROW_BYTES // element_size, 1 << (head_size.bit_length() - 1))
    rest = head_size % wide
    return wide, rest & -rest


def box_layout(columns: int, element_size: int) -> gl.NVMMASharedLayout:
    return gl.NVMMASharedLayout(
        swizzle_byte_width=columns * element_size, element_bitwidth=8 * element_size, rank=2
    )


def cache_steps(cache: Tensor) -> tuple[int, int, int]:
    """Steps in the matrix that ``cache_view`` describes: rows per page, rows per head, columns per head.

    Either the heads of a slot lie beside each other in a row, or the slots of one head follow those of
    another.
    """
    page_stride, slot_stride, head_stride, _ = cache.stride()
    if slot_stride >= cache.shape[2] * head_stride:
        return page_stride // slot_stride, 0, head_stride
    return page_stride // slot_stride, head_stride // slot_stride, 0


def cache_view(cache: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """A cache as a matrix whose rows hold slots, which is copied in boxes of this many rows and columns."""
    num_blocks, page_size, num_heads, head_size = cache.shape
    page_rows, head_rows, head_columns = cache_steps(cache)
    num_rows = (num_blocks - 1) * page_rows + (num_heads - 1) * head_rows + page_size
    num_columns = (num_heads - 1) * head_columns + head_size
    layout = box_layout(columns, cache.element_size())
    return TensorDescriptor(cache, [num_rows, num_columns], [cache.stride(1), 1], [rows, columns], layout)


def bind(
    plan: Plan,
    layer: Layer,
    schedule: OfPlan,
    cu_decodes: OfPlan,
    fragments: Sequence[OfPlan | None],
    num_splits: OfPlan | int | None,
) -> Launch:
    """The launch for layers like this one, for which ``unsupported_reason`` returns None.

    Args:
        fragments: the tensors of ``Scratch.fragments``, or None and those of ``Scratch.partials``.
        num_splits: of prompts.
    """
    q, out = layer.q, layer.out
    heads = plan.model.gqa_group_size
    model, cache_bytes = plan.model, layer.k_cache.element_size()
    chosen = constants(plan.config, model.head_size, model.block_size, heads, cache_bytes, model.fp8_queries)
    grid = (multiprocessors(plan.device),)
    arguments = (
        OfLayer("out"),
        OfLayer("q"),
        *descriptors(layer.k_cache, chosen.box),
        *(OfLayer(name) if isinstance(getattr(layer, name), Tensor) else None for name in OPTIONAL_TENSORS),
        BLOCK_TABLE,
        cu_decodes,
        SEQUSED_K,
        schedule,
        *fragments,
        *score_numbers(layer),
        num_splits,
        NUM_SEQS,
        plan.model.num_kv_heads,
        tiles_at(roles_of(plan.config, heads)),
        *(stride // UNIT.value for stride in q.stride()[:2] + out.stride()[:2]),
        lse_arguments(layer)[1],
        STRIDE_TABLE,
        *cache_steps(layer.k_cache),
        *cache_steps(layer.v_cache),
        chosen,
    )
    return Launch(hopper_kernel, lambda plan: grid, arguments, LAUNCH_OPTIONS)


def descriptors(cache: Tensor, rows: int) -> tuple[Described | None, ...]:
    """The arguments ``k_desc`` to ``v_tail_desc``, in boxes of this many rows; both caches are alike."""

    def describe(name: str, columns: int) -> Described | None:
        return Described(name, partial(cache_view, rows=rows, columns=columns)) if columns else None

    columns = box_columns(cache.shape[3], cache.element_size())
    return tuple(describe(name, n) for n in columns for name in ("k_cache", "v_cache"))


def score_numbers(layer: Layer) -> tuple[float, float | None, int | None, int | None, float | None]:
    """The arguments ``factor`` to ``v_scale``. An option that is absent is None."""
    scale = layer.softmax_scale * (1.0 if isinstance(layer.k_scale, Tensor) else layer.k_scale)
    v_scale = None if isinstance(layer.v_scale, Tensor) or layer.v_scale == 1.0 else layer.v_scale
    factor, cap = (scale / layer.softcap, layer.softcap * LOG2_E) if layer.softcap else (scale * LOG2_E, None)
    return factor, cap, layer.sliding_window, layer.ahead, v_scale


def serves(device: torch.device) -> bool:
    return (
        device.type != "cpu" and not torch.version.hip and torch.cuda.get_device_capability(device) == (9, 0)
    )
