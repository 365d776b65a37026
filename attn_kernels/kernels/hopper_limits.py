"""What the Hopper kernel can compute, and what it is compiled for.

Its limits stand here alone: the check of configs, launches, rules of tuning runs and offline compilation ask
this module, and ``treegen check`` compares the spec's constraints with it.
"""

from dataclasses import dataclass
from functools import lru_cache

from torch import Tensor

from attn_kernels.core.config import Config
from attn_kernels.core.structures import Layer, Plan
from attn_kernels.kernels.arguments import VECTOR_BYTES, multiprocessors
from attn_kernels.kernels.schedule import BLOCK_M, Roles

COLUMNS = 64  # two-byte elements in a row of 128 bytes, the widest swizzle
UNIT = 8  # two-byte elements in a 16-byte access: the unit of query and output strides
ROW_BYTES = 128  # of a box, at most: the widest swizzle
HEAD_SIZES = range(64, 257, 16)
FP8_HEAD_SIZES = (128, 256)  # of decodes, whose slots hold whole parts of a head
HEAD_BYTES = 32  # a head in the caches is a multiple: the narrowest swizzle
SHARED_BYTES = 232448  # shared memory that a program may have on Hopper
BARRIER_BYTES = 1536  # at most, with padding and the arguments of warps
MAX_DECODE_ROWS = 64  # query tokens times query heads: columns of a product
MAX_REPEATS = 8  # Q-Blocks that a warpgroup notes; 4 at most are on their way when it notes the first
MAX_IDLE = 8  # at most one of this many programs may be without decodes
MAX_SLOTS = 32  # of the decodes' ring
RING_BYTES = 128 << 10  # of decodes without prompts; more was slower
DECODE_TILE = 128  # keys of a decode's tile beside prompts; with 64, launches took 1% longer

# Registers of a thread that computes prompts, and of one that copies. In a program of both roles, a thread
# that computes decodes has what remains of 512, because four warpgroups share 65,536 registers.
PROMPT_REGISTERS = 240
COPY_REGISTERS = 24
DECODE_COPY_REGISTERS = 48  # where there are no prompts
CONVERT_REGISTERS = (224, 24)  # of fp8 caches; those that convert have what remains, too
POD_REGISTERS = (168, 40)

# The values of launch parameters that each variant's roles are written for, and the fewest stages.
PARAMETERS: dict[str, dict[str, tuple[int, ...]]] = {
    "qblock": {"block_m": (BLOCK_M,), "tile_size": (64, 128), "num_warps": (8,)},
    "stream_k": {"block_m": (16, 32, 64), "tile_size": (64, 128), "num_warps": (4,)},
    "pod": {"block_m": (BLOCK_M,), "tile_size": (64,), "num_warps": (4,)},
}
LEAST_STAGES = 2
# The options that each variant's roles compute, by their names in ``offline.compile.FEATURES``.
ALL = frozenset({"window", "noncausal", "softcap", "alibi", "sinks", "scales", "lse"})
OPTIONS: dict[str, frozenset[str]] = {"qblock": ALL | {"fp8"}, "stream_k": ALL | {"fp8"}, "pod": ALL}


@dataclass(frozen=True, slots=True)
class HopperParams:
    """The compile-time argument ``const`` of the kernel; 0 stands for what a role lacks."""

    heads: int  # query heads per KV head
    head_size: int
    page_size: int  # tokens per page
    box: int  # rows of a page that one copy brings
    tile_size: int  # keys of a prompt's tile
    stages: int  # of the prompts' ring
    raw_stages: int  # of the ring of fp8 values
    query_terms: int  # fp8 numbers whose sum is a query, next to fp8 keys
    decode_tile: int  # keys of a decode's tile
    slots: int  # of the decodes' ring; -1 if nothing fits
    rows: int  # of a decode's query tile
    registers: int  # of a thread that computes prompts
    copy_registers: int  # of a thread that copies


def asked_by(config: Config) -> bool:
    """Return whether a config asks for the kernel: with ``tma``, or as ``pod``, which has no other kernel."""
    return bool(config.tma) or config.variant == "pod"


def padded(head_size: int) -> int:
    """Columns of a prompt's head in shared memory: 128 for a head of 112, which is measured to be faster.

    Its last 48 columns would be products of 32 and of 16 columns, and copies of 16 columns.
    """
    return 128 if head_size == 112 else head_size


def decode_rows(config: Config, gqa_group_size: int) -> int:
    return config.block_m if config.variant == "stream_k" else max(16, 1 << (gqa_group_size - 1).bit_length())


def slots_of_tile(head_size: int, cache_bytes: int) -> int:
    """Slots of the decodes' ring that hold a tile's keys and values."""
    return 2 * -(-head_size * cache_bytes // ROW_BYTES)


@lru_cache(maxsize=4096)
def constants(
    config: Config,
    head_size: int,
    block_size: int,
    heads: int,
    cache_bytes: int = 2,
    fp8_queries: bool = False,
) -> HopperParams:
    """The kernel's ``const``, for launches and for offline compilation alike.

    Beside prompts, the decodes' ring takes the shared memory that is left, and so does a ring of fp8 tiles.

    Args:
        heads: query heads per KV head. cache_bytes: of a cache element. fp8_queries: of the model.
    """
    with_prompts, with_decodes = config.variant != "stream_k", config.variant != "qblock"
    tile = config.tile_size if with_prompts else 0
    decode_tile = (DECODE_TILE if with_prompts else config.tile_size) if with_decodes else 0
    rows = decode_rows(config, heads) if with_decodes else 0
    registers, copy_registers = PROMPT_REGISTERS, COPY_REGISTERS
    if with_decodes:
        registers, copy_registers = POD_REGISTERS if with_prompts else (0, DECODE_COPY_REGISTERS)
    free = SHARED_BYTES - BARRIER_BYTES
    free -= 2 * rows * (-(-head_size // COLUMNS) * COLUMNS + decode_tile)
    stages, raw_stages = config.num_stages if with_prompts else 0, 0
    if with_prompts:
        free -= padded(head_size) * (2 * BLOCK_M + (2 + cache_bytes) * stages * tile)
        if cache_bytes == 1:
            registers, copy_registers = CONVERT_REGISTERS
            raw_stages = max(0, min(stages, free // (head_size * tile)))
            free -= head_size * tile * raw_stages
    slots = free // (2 * decode_tile * COLUMNS) if with_decodes else 0
    if with_decodes and not with_prompts:
        slots = min(slots, RING_BYTES // (2 * decode_tile * COLUMNS))
    if with_decodes and head_size % COLUMNS:
        # Each slot always holds the same part of a head, so zeros remain beside the last columns.
        slots -= slots % slots_of_tile(head_size, cache_bytes)
    return HopperParams(
        heads=heads,
        head_size=head_size,
        page_size=block_size,
        box=min(block_size & -block_size, *filter(None, (tile, decode_tile))),
        tile_size=tile,
        stages=stages,
        raw_stages=raw_stages,
        query_terms=1 if fp8_queries else 2,
        decode_tile=decode_tile,
        slots=min(slots, MAX_SLOTS) if free >= 0 else -1,
        rows=rows,
        registers=registers,
        copy_registers=copy_registers,
    )


def roles_of(config: Config, heads: int) -> Roles:
    """The roles of a config's launch with this many query heads per KV head; none that cannot hold them."""
    chosen = constants(config, 64, 16, heads)  # whatever the head and the page
    prompt_block_q = BLOCK_M // heads if chosen.tile_size else 0
    decode_block_q = chosen.rows // heads
    return Roles(prompt_block_q, decode_block_q, chosen.decode_tile if decode_block_q else 0)


def unsupported_shape(
    config: Config,
    head_size: int,
    block_size: int,
    gqa_group_size: int,
    cache_bytes: int = 2,
    num_kv_heads: int = 1,
    num_multiprocessors: int = 132,
) -> str | None:
    """Return why the kernel cannot compute a layer of this shape; None if it can."""
    if head_size not in HEAD_SIZES:
        return f"the head size is {head_size}, not a multiple of 16 from 64 to 256"
    if head_size * cache_bytes % HEAD_BYTES:
        return f"a head is {head_size * cache_bytes} bytes in a cache, not a multiple of {HEAD_BYTES}"
    if cache_bytes == 1 and "fp8" not in OPTIONS[config.variant]:
        return f"{config.variant} lacks fp8 caches"
    if config.variant != "qblock" and cache_bytes == 1 and head_size not in FP8_HEAD_SIZES:
        return f"the head size is {head_size}, not one of {FP8_HEAD_SIZES} for fp8 caches"
    if gqa_group_size > BLOCK_M:
        return f"more than {BLOCK_M} query heads share a KV head"
    if block_size % 16:
        return f"the page size is {block_size}, not a multiple of 16"
    chosen = constants(config, head_size, block_size, gqa_group_size, cache_bytes)
    if chosen.rows > MAX_DECODE_ROWS or (chosen.rows and gqa_group_size > chosen.rows):
        return f"{gqa_group_size} query heads share a KV head, too many for a decode's query tile"
    # A tile's keys, and then its values, stay in their slots while others arrive.
    least = slots_of_tile(head_size, cache_bytes) + (head_size % COLUMNS == 0) if chosen.rows else 0
    least_raw = 1 if cache_bytes == 1 and chosen.stages else 0
    if chosen.slots < least or chosen.raw_stages < least_raw:
        return f"{config} needs more bytes of shared memory than {SHARED_BYTES}"
    if chosen.rows and num_multiprocessors % num_kv_heads * MAX_IDLE > num_multiprocessors:
        return f"{num_kv_heads} KV heads leave too many of {num_multiprocessors} programs without decodes"
    return None


def options_of(layer: Layer) -> set[str]:
    """The options that a layer uses, by their names in ``OPTIONS``."""
    there = {
        "window": layer.sliding_window is not None,
        "noncausal": layer.ahead is not None,
        "softcap": bool(layer.softcap),
        "alibi": layer.alibi_slopes is not None,
        "sinks": layer.sinks is not None,
        "fp8": layer.k_cache.dtype != layer.q.dtype,
        "scales": isinstance(layer.k_scale, Tensor)
        or isinstance(layer.v_scale, Tensor)
        or layer.v_scale != 1.0,
        "lse": layer.lse is not None,
        "ranges": layer.bidirectional_ranges is not None,
    }
    return {name for name, given in there.items() if given}


def unsupported_reason(plan: Plan, layer: Layer) -> str | None:
    """Return why the kernel cannot compute this layer; None if it can."""
    q, out, k_cache, v_cache = layer.q, layer.out, layer.k_cache, layer.v_cache
    missing = options_of(layer) - OPTIONS[plan.config.variant]
    if missing:
        return f"{plan.config.variant} lacks {', '.join(sorted(missing))}"
    if any(tensor.data_ptr() % 16 for tensor in (q, out, k_cache, v_cache)):
        return "a tensor does not begin at a multiple of 16 bytes"
    model, element = plan.model, k_cache.element_size()
    sizes = (model.head_size, model.block_size, model.gqa_group_size, element, model.num_kv_heads)
    strides = (q.stride(), out.stride(), k_cache.stride(), v_cache.stride())
    return unsupported_shape(plan.config, *sizes, multiprocessors(plan.device)) or why_not_strides(
        *strides, k_cache.shape[0], model.num_kv_heads, element
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
    units = (UNIT, UNIT, VECTOR_BYTES // cache_bytes, VECTOR_BYTES // cache_bytes)
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
