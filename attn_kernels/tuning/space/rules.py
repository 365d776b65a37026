"""Rules that drop configs which cannot work at a shape, or cannot win in a scenario.

A rule gives the same text as its reason everywhere, so that reasons can be counted.
"""

from dataclasses import dataclass

from triton import next_power_of_2

from attn_kernels.choose.mixed import needs_parts
from attn_kernels.core.config import Config
from attn_kernels.core.model import Model
from attn_kernels.kernels.arguments import WIDE_HEAD, head_padded, output_columns
from attn_kernels.kernels.hopper_launch import hopper_module
from attn_kernels.kernels.hopper_limits import asked_by, unsupported_shape
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.kernels.splits import heads_of_tile, rows_of_q_block
from attn_kernels.measure.batches import Batch

SHARED = "needs more shared memory than a block has"
ROWS = "rows of a tile fewer than the query heads of a KV head"
REGISTERS = "accumulators and scores exceed a thread's registers"
DESCRIPTORS = "descriptors fall back to pointers here"
HOPPER = "the kernel for mixed batches does not serve this shape or GPU"
STAGES = "more stages than pay on AMD"
WIDE = "for heads of more than 256 elements"
EMPTY_TILES = "query tiles mostly empty"
SMALL_TILES = "query tiles too small for prompts"

ENOUGH_ROWS = 64  # of a tile, whatever the number of query heads: two tiles can share more
WARP = 32  # threads, NVIDIA
# Floats of accumulators and scores per thread. Of the configs compiled for sm_90, all with more spill 38
# registers or more, and some with fewer spill.
MAX_FLOATS = 191
MAX_KEYS = 8  # of a wide head's tile a warp: threads that point to more of them spill
AMD_STAGES = 2
EMPTY_FACTOR = 4  # rows of a tile over the rows that the longest query fills
MANY_WAVES = 64  # query tiles per multiprocessor
PROMPT_ROWS = 128  # rows of every sequence: then larger tiles read keys less often
OF_WIDE_HEADS = frozenset(
    config for variant in VARIANTS.values() for config in variant.configs(wide_heads=True)
)


@dataclass(frozen=True)
class Gpu:
    """The facts of a device that rules use."""

    arch: str  # "sm_90", "gfx942", ...
    vendor: str  # "nvidia", "amd", or "cpu" for Triton's interpreter
    shared_bytes: int  # shared memory that a block may have
    multiprocessors: int


def reason_of_model(config: Config, model: Model, gpu: Gpu) -> str | None:
    """Return why a config cannot work for a model, or is a duplicate there; None if it may be measured."""
    served = not asked_by(config) or hopper_serves(config, model, gpu)
    if needs_parts(config):
        return None if served else HOPPER
    if config.block_m < min(model.gqa_group_size, ENOUGH_ROWS):
        return ROWS
    if gpu.vendor == "amd" and config.num_stages > AMD_STAGES:
        return STAGES
    if not served:
        return DESCRIPTORS
    head_size = model.head_size
    wide = head_padded(head_size) >= WIDE_HEAD
    if gpu.vendor == "nvidia" and config in OF_WIDE_HEADS and not wide:
        return WIDE
    if gpu.vendor != "cpu" and not config.tma and shared_bytes(config, model, gpu) > gpu.shared_bytes:
        return SHARED
    if gpu.vendor == "nvidia" and not config.tma:
        columns = output_columns(config.block_m, head_size)
        if config.block_m * (columns + config.tile_size) > MAX_FLOATS * WARP * config.num_warps:
            return REGISTERS
        if wide and config.tile_size > MAX_KEYS * config.num_warps:
            return REGISTERS
    return None


def hopper_serves(config: Config, model: Model, gpu: Gpu) -> bool:
    """Return whether a config that asks for the Hopper kernel launches it."""
    element, kv_heads = model.kv_element_size, model.num_kv_heads
    sizes = (model.head_size, model.block_size, model.gqa_group_size, element, kv_heads)
    on_hopper = gpu.arch == "sm_90" and hopper_module() is not None
    return on_hopper and unsupported_shape(config, *sizes, gpu.multiprocessors) is None


def shared_bytes(config: Config, model: Model, gpu: Gpu) -> int:
    """Bytes of shared memory that a block needs at least, as Triton 3.9 allocates (docs/space.md)."""
    block_m, tile, head_size = config.block_m, config.tile_size, model.head_size
    head, item, element = head_padded(head_size), model.dtype.itemsize, model.kv_element_size
    # Copies of less than 4 bytes are not asynchronous, so loops of them have no stages.
    columns = head + output_columns(block_m, head_size) if head_size * element % 4 == 0 else 0  # of K and V
    stages = tile * columns * element * (config.num_stages - 1)  # as cached
    queries, weights = block_m * head * item, block_m * tile * item
    if gpu.vendor == "amd":
        return stages + (weights if block_m >= 64 else 0)
    if gpu.arch not in ("sm_80", "sm_90"):
        return stages
    if gpu.arch == "sm_90" and block_m >= 64 and config.num_warps >= 4:
        # wgmma reads K and V from shared memory: one stage more, in the queries' type.
        return stages + tile * columns * item + queries
    # Warps side by side along the keys exchange their weights.
    return stages + queries + (weights if block_m < 64 and config.num_warps > 1 else 0)


def reason_against(config: Config, batch: Batch, gpu: Gpu) -> str | None:
    """Return why a config cannot win in a scenario; None if it may be measured."""
    if needs_parts(config):
        return None
    rows = heads_of_tile(config, batch.model.gqa_group_size)  # that a query token takes
    if config.block_m > EMPTY_FACTOR * max(16, next_power_of_2(batch.lengths.max_query_len * rows)):
        return EMPTY_TILES
    tiles = query_tiles(config, batch)
    shortest = min(query for query in batch.query_lens if query)
    many = tiles >= MANY_WAVES * gpu.multiprocessors and shortest * rows >= PROMPT_ROWS
    if many and config.block_m <= 16:
        return SMALL_TILES
    return None


def query_tiles(config: Config, batch: Batch) -> int:
    """Query tiles of all sequences and heads."""
    tokens = config.block_m // heads_of_tile(config, batch.model.gqa_group_size)
    beside = rows_of_q_block(config, batch.model) // config.block_m  # tiles that compute the same tokens
    return beside * sum(-(-query // tokens) for query in batch.query_lens)
