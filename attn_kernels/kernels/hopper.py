"""The Hopper kernel: TMA, asynchronous wgmma and specialised warps, in Gluon, in persistent programs.

A program has two roles: ``hopper_prompts`` and ``hopper_decodes``. Each has computing warpgroups, a copying
warp, and a ring in shared memory. ``qblock`` launches the first role, ``stream_k`` the second and ``pod``
both, for layers that the kernel can compute (``why_not``). With both, every multiprocessor computes prompts
while it reads the decodes' caches (POD-Attention, arXiv 2410.18038). In that paper, programs of either kind
share a multiprocessor. Here they cannot, because a program takes all of its registers: ``setmaxnreg`` moves
registers between the warps of one program, and never between programs.
"""

from collections.abc import Sequence
from functools import cache, lru_cache, partial

import torch
from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Described, Launch, Layer, OfLayer, OfPlan, Plan
from attn_kernels.kernels.arguments import (
    BLOCK_TABLE,
    LOG2_E,
    NUM_SEQS,
    SEQUSED_K,
    STRIDE_TABLE,
    VECTOR_BYTES,
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
from attn_kernels.kernels.hopper_prompts import (
    BLOCK_M,
    PROMPT_FIELDS,
    consume_prompts,
    convert_values,
    produce_prompts,
)
from attn_kernels.kernels.hopper_shares import DECODE_FIELDS, clear_slots, produce_decodes
from attn_kernels.kernels.schedule import Roles, tiles_at
from attn_kernels.kernels.static_grid import multiprocessors

ROW_BYTES = 128  # of a box, at most: the widest swizzle
HEAD_SIZES = range(64, 257, 16)
FP8_HEAD_SIZES = (128, 256)  # of decodes, whose slots hold whole parts of a head
HEAD_BYTES = 32  # a head in the caches is a multiple: the narrowest swizzle
SHARED_BYTES = 232448  # shared memory that a program may have on Hopper
SHARED_OF_TWO = 115712  # and where two programs share a multiprocessor
BARRIER_BYTES = 1536  # at most, with padding and the arguments of warps
MAX_DECODE_ROWS = 64  # query tokens times query heads: columns of a product
MAX_IDLE = 8  # at most one of so many programs may be without decodes
MAX_SLOTS = 32  # of the decodes' ring
RING_BYTES = (128 << 10, 96 << 10)  # of one program's decodes and of two without prompts; more was slower
WARPS = 4  # of a computing warpgroup; Triton adds the others

# Registers of a thread that computes prompts, and of one that copies. In a program of both roles, a thread
# that computes decodes has what remains of 512, because four warpgroups share 65,536 registers.
PROMPT_REGISTERS = 240
COPY_REGISTERS = 24
DECODE_COPY_REGISTERS = 48  # where there are no prompts
CONVERT_REGISTERS = (224, 24)  # of fp8 caches; those that convert have what remains, too
POD_REGISTERS = {64: (168, 40), 128: (208, 24)}  # by the prompts' tile

# The options that each variant's roles compute, by their names in ``offline.sources.FEATURES``.
SCORES = frozenset({"window", "softcap", "alibi", "sinks", "scales", "new_kv"})
OPTIONS: dict[str, frozenset[str]] = {"qblock": SCORES | {"fp8"}, "stream_k": SCORES | {"fp8"}, "pod": SCORES}

# Integers that never specialise the kernel, so that no step and no other model compiles it again.
RUNTIME_INTS = (
    "window",
    "num_seqs",
    "num_kv_heads",
    "tiles_at",
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
INDEX_POINTERS = (
    "block_table_ptr",
    "cu_prompts_ptr",
    "cu_decodes_ptr",
    "seqused_k_ptr",
    "schedule_ptr",
    "counters_ptr",
)
SCALAR_POINTERS = ("slopes_ptr", "sinks_ptr", "k_scale_ptr", "v_scale_ptr")
OPTIONAL_TENSORS = ("alibi_slopes", "sinks", "k_scale", "v_scale")
FRAGMENT_POINTERS = ("partial_ptr", "max_ptr", "sum_ptr")


@gluon.jit(do_not_specialize=RUNTIME_INTS, do_not_specialize_on_alignment=(*INDEX_POINTERS, *SCALAR_POINTERS))
def hopper_kernel(
    out_ptr,
    q_ptr,
    k_desc,
    v_desc,
    k_tail_desc,
    v_tail_desc,
    slopes_ptr,
    sinks_ptr,
    k_scale_ptr,
    v_scale_ptr,
    block_table_ptr,
    cu_prompts_ptr,
    cu_decodes_ptr,
    seqused_k_ptr,
    schedule_ptr,
    counters_ptr,
    partial_ptr,
    max_ptr,
    sum_ptr,
    factor,
    cap,
    window,
    v_scale,
    num_seqs,
    num_kv_heads,
    tiles_at,
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
    RAW_STAGES: gl.constexpr,
    QUERY_TERMS: gl.constexpr,
    DECODE_TILE: gl.constexpr,
    SLOTS: gl.constexpr,
    ROWS: gl.constexpr,
    REGISTERS: gl.constexpr,
    COPY_REGISTERS: gl.constexpr,
):
    layout: gl.constexpr = gl.NVMMASharedLayout(128, 16, rank=2)
    dtype: gl.constexpr = q_ptr.dtype.element_ty
    PARTS: gl.constexpr = (HEAD_SIZE + COLUMNS - 1) // COLUMNS
    FP8: gl.constexpr = k_desc.dtype == gl.float8e4nv
    strides = (stride_q_token, stride_q_head, stride_out_token, stride_out_head)
    if k_scale_ptr is not None:
        factor *= gl.load(k_scale_ptr)
    if v_scale_ptr is not None:
        scoring = Scoring(factor, cap, window, slopes_ptr, sinks_ptr, gl.load(v_scale_ptr))
    else:
        scoring = Scoring(factor, cap, window, slopes_ptr, sinks_ptr, v_scale)
    rows = (q_ptr, out_ptr, strides, scoring)
    k_steps = (k_page_rows, k_head_rows, k_head_columns)
    v_steps = (v_page_rows, v_head_rows, v_head_columns)
    caches = Caches(k_desc, v_desc, k_tail_desc, v_tail_desc, k_steps, v_steps, block_table_ptr, stride_table)
    if TILE_SIZE > 0:
        LINE: gl.constexpr = COLUMNS if RAW_STAGES else k_desc.block_shape[1]
        # One product of 256 columns needs more registers than a thread has when a launch of 512 begins.
        MOST: gl.constexpr = 128 if RAW_STAGES else 256
        WIDE: gl.constexpr = k_desc.block_shape[1]
        # Values are fp16 next to fp8 keys, and queries are fp8 numbers or sums of two.
        value_dtype: gl.constexpr = gl.float16 if RAW_STAGES else dtype
        q_smem = allocate_heads(4 if RAW_STAGES else 2, GROUP_ROWS, HEAD_SIZE, WIDE, MOST, k_desc.dtype)
        k_smem = allocate_heads(STAGES, TILE_SIZE, HEAD_SIZE, WIDE, MOST, k_desc.dtype)
        v_smem = allocate_heads(STAGES, TILE_SIZE, HEAD_SIZE, LINE, MOST, value_dtype)
        ring = (k_smem, v_smem, barriers(STAGES, 2 if RAW_STAGES else 1), barriers(STAGES, 2))
        raw_ring = None
        mail = mailbox(PROMPT_FIELDS, 3 if RAW_STAGES else 2)
        prompts = (schedule_ptr + 4, schedule_ptr + 2, num_kv_heads, cu_prompts_ptr, seqused_k_ptr)
    if RAW_STAGES > 0:
        raw_v = allocate_heads(RAW_STAGES, TILE_SIZE, HEAD_SIZE, WIDE, MOST, k_desc.dtype)
        raw_ring = (raw_v, raw_v, barriers(RAW_STAGES, 1), barriers(RAW_STAGES, 1))
    if DECODE_TILE > 0:
        # Pairs of fp8 numbers become fp16.
        slot_dtype: gl.constexpr = gl.uint16 if FP8 else dtype
        decode_dtype: gl.constexpr = gl.float16 if FP8 else dtype
        decode_smem = gl.allocate_shared_memory(slot_dtype, [SLOTS, DECODE_TILE, COLUMNS], layout)
        decode_q_smem = gl.allocate_shared_memory(decode_dtype, [PARTS, ROWS, COLUMNS], layout)
        weight_smem = gl.allocate_shared_memory(decode_dtype, [ROWS, DECODE_TILE], layout)
        if HEAD_SIZE % COLUMNS > 0 and not FP8:
            clear_slots(decode_smem)
        decode_ring = (decode_smem, barriers(SLOTS, 1), barriers(SLOTS, 1))
        decode_mail = mailbox(DECODE_FIELDS, 1)
        decodes = (schedule_ptr + tiles_at, num_seqs, num_kv_heads, cu_decodes_ptr, seqused_k_ptr)
        fragments = (counters_ptr, partial_ptr, max_ptr, sum_ptr)
        decode_smems = (decode_q_smem, weight_smem, decode_ring)
        BLOCK_Q: gl.constexpr = ROWS // HEADS
    fence_async_shared()
    # The first function runs in the warps that hold the kernel's arguments; they cost it no registers.
    if RAW_STAGES > 0:
        gl.warp_specialize(
            [
                (convert_values, (raw_ring, ring, mail, window)),
                (consume_prompts, (0, QUERY_TERMS, rows, q_smem, ring, mail, HEADS, HEAD_SIZE)),
                (consume_prompts, (1, QUERY_TERMS, rows, q_smem, ring, mail, HEADS, HEAD_SIZE)),
                (
                    produce_prompts,
                    (caches, ring, raw_ring, mail, schedule_ptr, prompts, window, HEADS, HEAD_SIZE, PAGE_SIZE),
                ),
            ],
            [4, 4, 1],
            [REGISTERS, REGISTERS, COPY_REGISTERS],
        )
    elif DECODE_TILE == 0:
        gl.warp_specialize(
            [
                (consume_prompts, (0, QUERY_TERMS, rows, q_smem, ring, mail, HEADS, HEAD_SIZE)),
                (consume_prompts, (1, QUERY_TERMS, rows, q_smem, ring, mail, HEADS, HEAD_SIZE)),
                (
                    produce_prompts,
                    (caches, ring, None, mail, schedule_ptr, prompts, window, HEADS, HEAD_SIZE, PAGE_SIZE),
                ),
            ],
            [4, 1],
            [REGISTERS, COPY_REGISTERS],
        )
    elif TILE_SIZE == 0:
        gl.warp_specialize(
            [
                (
                    consume_decodes,
                    (rows, decode_smems, decode_mail, fragments, num_kv_heads, HEADS, HEAD_SIZE),
                ),
                (
                    produce_decodes,
                    (caches, decode_ring, decode_mail, decodes, window, BLOCK_Q, HEAD_SIZE, PAGE_SIZE),
                ),
            ],
            [1],
            [COPY_REGISTERS],
        )
    else:
        gl.warp_specialize(
            [
                (
                    consume_decodes,
                    (rows, decode_smems, decode_mail, fragments, num_kv_heads, HEADS, HEAD_SIZE),
                ),
                (consume_prompts, (0, QUERY_TERMS, rows, q_smem, ring, mail, HEADS, HEAD_SIZE)),
                (consume_prompts, (1, QUERY_TERMS, rows, q_smem, ring, mail, HEADS, HEAD_SIZE)),
                (
                    produce_prompts,
                    (caches, ring, None, mail, schedule_ptr, prompts, window, HEADS, HEAD_SIZE, PAGE_SIZE),
                ),
                (
                    produce_decodes,
                    (caches, decode_ring, decode_mail, decodes, window, BLOCK_Q, HEAD_SIZE, PAGE_SIZE),
                ),
            ],
            [4, 4, 1, 1],
            [REGISTERS, REGISTERS, COPY_REGISTERS, COPY_REGISTERS],
        )


def box_columns(head_size: int, element_size: int) -> tuple[int, int]:
    """Columns of the boxes that copy a head: of all but its last columns, and of those (0 if none remain).

    Both are powers of two. ``element_size``: bytes of a cache element.
    """
    wide = min(ROW_BYTES // element_size, 1 << (head_size.bit_length() - 1))
    rest = head_size % wide
    return wide, rest & -rest


def box_layout(columns: int, element_size: int) -> gl.NVMMASharedLayout:
    """The layout of a box in shared memory, whose swizzle is as wide as a row."""
    return gl.NVMMASharedLayout(
        swizzle_byte_width=columns * element_size, element_bitwidth=8 * element_size, rank=2
    )


def cache_steps(cache: Tensor) -> tuple[int, int, int]:
    """Steps in the matrix that ``cache_view`` describes: rows a page, rows a head, columns a head.

    Either the heads of a slot lie beside each other in a row, or the slots of one head follow those of
    another.
    """
    page_stride, slot_stride, head_stride, _ = cache.stride()
    if slot_stride >= cache.shape[2] * head_stride:
        return page_stride // slot_stride, 0, head_stride
    return page_stride // slot_stride, head_stride // slot_stride, 0


def cache_view(cache: Tensor, rows: int, columns: int) -> TensorDescriptor:
    """A cache as a matrix whose rows hold slots, which is copied in boxes of so many rows and columns."""
    num_blocks, page_size, num_heads, head_size = cache.shape
    page_rows, head_rows, head_columns = cache_steps(cache)
    num_rows = (num_blocks - 1) * page_rows + (num_heads - 1) * head_rows + page_size
    num_columns = (num_heads - 1) * head_columns + head_size
    layout = box_layout(columns, cache.element_size())
    return TensorDescriptor(cache, [num_rows, num_columns], [cache.stride(1), 1], [rows, columns], layout)


def decode_rows(config: Config, queries_per_kv: int) -> int:
    """Rows of a decode's query tile."""
    return config.block_m if config.variant == "stream_k" else max(16, 1 << (queries_per_kv - 1).bit_length())


def slots_of_tile(head_size: int, cache_bytes: int) -> int:
    """Slots of the decodes' ring that hold a tile's keys and values."""
    return 2 * -(-head_size * cache_bytes // ROW_BYTES)


@lru_cache(maxsize=4096)
def constants(
    config: Config, head_size: int, block_size: int, heads: int, cache_bytes: int = 2, fp8_queries: bool = False
) -> dict[str, int]:
    """The kernel's compile-time arguments, of a launch and of an offline compilation alike.

    Beside prompts, the decodes' ring takes the shared memory that is left, and so does a ring of fp8 tiles.

    Args:
        heads: query heads a KV head. cache_bytes: of a cache element. fp8_queries: of the model.
    """
    with_prompts, with_decodes = config.variant != "stream_k", config.variant != "qblock"
    tile = config.tile_size if with_prompts else 0
    decode_tile = (config.decode_tile if with_prompts else config.tile_size) if with_decodes else 0
    rows = decode_rows(config, heads) if with_decodes else 0
    registers, copy_registers = PROMPT_REGISTERS, COPY_REGISTERS
    if with_decodes:
        registers, copy_registers = POD_REGISTERS.get(tile, (0, DECODE_COPY_REGISTERS))
    free = (SHARED_OF_TWO if config.programs_per_sm > 1 else SHARED_BYTES) - BARRIER_BYTES
    free -= 2 * rows * (-(-head_size // COLUMNS.value) * COLUMNS.value + decode_tile)
    stages, raw_stages = config.num_stages if with_prompts else 0, 0
    if with_prompts and cache_bytes == 1:
        registers, copy_registers = CONVERT_REGISTERS
    if with_prompts:
        free -= head_size * (2 * BLOCK_M.value + (2 + cache_bytes) * stages * tile)
    if with_prompts and cache_bytes == 1:
        raw_stages = max(0, min(config.num_stages, free // (head_size * tile)))
        free -= head_size * tile * raw_stages
    slots = free // (2 * decode_tile * COLUMNS.value) if with_decodes else 0
    if with_decodes and not with_prompts:
        slots = min(slots, RING_BYTES[config.programs_per_sm > 1] // (2 * decode_tile * COLUMNS.value))
    if with_decodes and head_size % COLUMNS.value:
        # Each slot always holds the same part of a head, so zeros remain beside the last columns.
        slots -= slots % slots_of_tile(head_size, cache_bytes)
    return {
        "HEADS": heads,
        "HEAD_SIZE": head_size,
        "PAGE_SIZE": block_size,
        "BOX": min(block_size & -block_size, *filter(None, (tile, decode_tile))),
        "TILE_SIZE": tile,
        "STAGES": stages,
        "RAW_STAGES": raw_stages,
        "QUERY_TERMS": 1 if fp8_queries else 2,
        "DECODE_TILE": decode_tile,
        "SLOTS": min(slots, MAX_SLOTS) if free >= 0 else -1,
        "ROWS": rows,
        "REGISTERS": registers,
        "COPY_REGISTERS": copy_registers,
    }


def roles_of(config: Config, heads: int) -> Roles:
    """The roles that a config's launch has, for so many query heads a KV head; none that cannot hold them."""
    chosen = constants(config, 64, 16, heads)  # whatever the head and the page
    prompt_block_q = BLOCK_M.value // heads if chosen["TILE_SIZE"] else 0
    decode_block_q = chosen["ROWS"] // heads
    return Roles(prompt_block_q, decode_block_q, chosen["DECODE_TILE"] if decode_block_q else 0)


def why_not_shape(
    config: Config, head_size: int, block_size: int, queries_per_kv: int, cache_bytes: int = 2
) -> str | None:
    """Return why the kernel cannot compute a layer of this shape; None if it can."""
    if head_size not in HEAD_SIZES:
        return f"the head size is {head_size}, not a multiple of 16 from 64 to 256"
    if head_size * cache_bytes % HEAD_BYTES:
        return f"a head is {head_size * cache_bytes} bytes in a cache, not a multiple of {HEAD_BYTES}"
    if config.variant != "qblock" and cache_bytes == 1 and head_size not in FP8_HEAD_SIZES:
        return f"the head size is {head_size}, not one of {FP8_HEAD_SIZES} for fp8 caches"
    if queries_per_kv > BLOCK_M.value:
        return f"more than {BLOCK_M.value} query heads share a KV head"
    if block_size % 16:
        return f"the page size is {block_size}, not a multiple of 16"
    chosen = constants(config, head_size, block_size, queries_per_kv, cache_bytes)
    if chosen["ROWS"] > MAX_DECODE_ROWS or (chosen["ROWS"] and queries_per_kv > chosen["ROWS"]):
        return f"{queries_per_kv} query heads share a KV head, too many for a decode's query tile"
    # A tile's keys, and then its values, stay in their slots while others arrive.
    least = slots_of_tile(head_size, cache_bytes) + (head_size % COLUMNS.value == 0) if chosen["ROWS"] else 0
    least_raw = 1 if cache_bytes == 1 and chosen["STAGES"] else 0
    if chosen["SLOTS"] < least or chosen["RAW_STAGES"] < least_raw:
        return f"{config} needs more bytes of shared memory than {SHARED_BYTES}"
    return None


def options_of(layer: Layer) -> set[str]:
    """The names, as in ``OPTIONS``, of what a layer has beside q and the caches."""
    there = {
        "window": layer.sliding_window is not None,
        "softcap": bool(layer.softcap),
        "alibi": layer.alibi_slopes is not None,
        "sinks": layer.sinks is not None,
        "fp8": layer.k_cache.dtype != layer.q.dtype,
        "scales": isinstance(layer.k_scale, Tensor)
        or isinstance(layer.v_scale, Tensor)
        or layer.v_scale != 1.0,
    }
    return {name for name, given in there.items() if given}


def why_not(plan: Plan, layer: Layer) -> str | None:
    """Return why the kernel cannot compute this layer; None if it can."""
    q, out, k_cache, v_cache = layer.q, layer.out, layer.k_cache, layer.v_cache
    missing = options_of(layer) - OPTIONS[plan.config.variant]
    if missing:
        return f"{plan.config.variant} lacks {', '.join(sorted(missing))}"
    if any(tensor.data_ptr() % 16 for tensor in (q, out, k_cache, v_cache)):
        return "a tensor does not begin at a multiple of 16 bytes"
    model = plan.model
    shape = (model.head_size, model.block_size, model.queries_per_kv, k_cache.element_size())
    why = why_not_shape(plan.config, *shape)
    why = why or why_not_heads(plan)
    return why or why_not_strides(
        q.stride(),
        out.stride(),
        k_cache.stride(),
        v_cache.stride(),
        k_cache.shape[0],
        plan.model.num_kv_heads,
        k_cache.element_size(),
    )


@lru_cache(maxsize=4096)
def why_not_strides(
    q: tuple[int, ...],
    out: tuple[int, ...],
    k_cache: tuple[int, ...],
    v_cache: tuple[int, ...],
    num_blocks: int,
    num_kv_heads: int,
    cache_bytes: int,
) -> str | None:
    """Return why tensors of these strides cannot be read through descriptors; None if they can."""
    units = (UNIT.value, UNIT.value, VECTOR_BYTES // cache_bytes, VECTOR_BYTES // cache_bytes)
    for (*strides, last), unit in zip((q, out, k_cache, v_cache), units, strict=True):
        if last != 1 or any(stride % unit for stride in strides):
            return "a tensor's rows are not multiples of 16 bytes apart"
    for page_stride, slot_stride, head_stride, _ in (k_cache, v_cache):
        beside = slot_stride >= num_kv_heads * head_stride
        if slot_stride == 0 or page_stride % slot_stride or not (beside or head_stride % slot_stride == 0):
            return "a cache's pages or heads are not a whole number of slots apart"
        if num_blocks * page_stride // slot_stride >= 2**31:
            return "a cache has 2^31 slots or more"
    return None


def why_not_heads(plan: Plan) -> str | None:
    """Return why programs cannot share the decodes of a plan; None if they can."""
    heads, programs = plan.model.num_kv_heads, multiprocessors(plan.device) * plan.config.programs_per_sm
    if plan.config.variant != "qblock" and programs % heads * MAX_IDLE > programs:
        return f"{heads} KV heads leave too many of {programs} programs without decodes"
    return None


def bind(
    plan: Plan,
    layer: Layer,
    schedule: OfPlan,
    cu_prompts: OfPlan,
    cu_decodes: OfPlan,
    fragments: Sequence[OfPlan | None],
) -> Launch:
    """The launch for layers like this one, for which ``why_not`` returns None.

    Args:
        schedule, cu_prompts, cu_decodes: as ``bind_schedule`` takes them.
        fragments: the tensors of ``Scratch.fragments``; four times None without decodes.
    """
    q, out = layer.q, layer.out
    heads = plan.model.queries_per_kv
    model, cache_bytes = plan.model, layer.k_cache.element_size()
    chosen = constants(
        plan.config, model.head_size, model.block_size, heads, cache_bytes, model.fp8_queries
    )
    grid = (multiprocessors(plan.device) * plan.config.programs_per_sm,)
    arguments = (
        OfLayer("out"),
        OfLayer("q"),
        *descriptors(layer.k_cache, chosen["BOX"]),
        *(OfLayer(name) if isinstance(getattr(layer, name), Tensor) else None for name in OPTIONAL_TENSORS),
        BLOCK_TABLE,
        cu_prompts,
        cu_decodes,
        SEQUSED_K,
        schedule,
        *fragments,
        *score_numbers(layer),
        NUM_SEQS,
        plan.model.num_kv_heads,
        tiles_at(roles_of(plan.config, heads)),
        *(stride // UNIT.value for stride in q.stride()[:2] + out.stride()[:2]),
        STRIDE_TABLE,
        *cache_steps(layer.k_cache),
        *cache_steps(layer.v_cache),
        *chosen.values(),
    )
    return Launch(hopper_kernel, lambda plan: grid, arguments, launch_options(plan.config))


def descriptors(cache: Tensor, rows: int) -> tuple[Described | None, ...]:
    """The arguments ``k_desc`` to ``v_tail_desc``, in boxes of so many rows; both caches are alike."""

    def describe(name: str, columns: int) -> Described | None:
        return Described(name, partial(cache_view, rows=rows, columns=columns)) if columns else None

    columns = box_columns(cache.shape[3], cache.element_size())
    return tuple(describe(name, n) for n in columns for name in ("k_cache", "v_cache"))


def score_numbers(layer: Layer) -> tuple[float, float | None, int | None, float | None]:
    """The arguments ``factor``, ``cap``, ``window`` and ``v_scale``. An option that is absent is None."""
    scale = layer.softmax_scale * (1.0 if isinstance(layer.k_scale, Tensor) else layer.k_scale)
    v_scale = None if isinstance(layer.v_scale, Tensor) or layer.v_scale == 1.0 else layer.v_scale
    if layer.softcap:
        return scale / layer.softcap, layer.softcap * LOG2_E, layer.sliding_window, v_scale
    return scale * LOG2_E, None, layer.sliding_window, v_scale


def launch_options(config: Config) -> dict[str, int | bool]:
    """Triton's options of a config's launch."""
    options: dict[str, int | bool] = {"num_warps": WARPS, "enable_fp_fusion": True}  # as compile_options
    if config.programs_per_sm > 1:
        options["maxnreg"] = 128  # of 65,536 registers for two programs of eight warps
    return options


@cache
def serves(device: torch.device) -> bool:
    """Return whether a device is a Hopper GPU."""
    return (
        device.type == "cuda" and not torch.version.hip and torch.cuda.get_device_capability(device) == (9, 0)
    )
