"""The configs that a sweep tries for a batch, variant by variant, and why it tries none of a variant."""

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from attn_kernels import Config
from attn_kernels.kernels.stream_k import why_not
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.roofline import visible_keys
from attn_kernels.offline.resources import SHARED_LIMITS

MOST = 12  # candidates of a variant
MIN_ROWS = 16  # of a query tile
FULL_WAVES = 4  # blocks a multiprocessor from which on a batch needs no segments
MAX_SEGMENTS = 64
# Multiply-adds of naive's products, which no matrix instruction does: about 6 ms on an H100.
NAIVE_LIMIT = 1 << 33
SHARED_BYTES = SHARED_LIMITS["sm_90"]  # of a multiprocessor of an H100
REGISTERS, MOST_REGISTERS = 65536, 255  # of a multiprocessor, and of a thread
RESIDENT_WARPS = 12  # whose threads have 168 registers each
PARTIALS_LIMIT = 1 << 30  # bytes of segments' partial results

# (tile size, warps, stages) by rows of a query tile, most promising first.
TILES: dict[int, tuple[tuple[int, int, int], ...]] = {
    16: ((64, 4, 3), (128, 4, 2), (64, 2, 3), (32, 2, 4), (32, 4, 3), (128, 4, 3), (64, 4, 2), (128, 8, 2)),
    32: ((64, 4, 3), (128, 4, 2), (32, 4, 3), (64, 4, 2), (32, 2, 3), (128, 8, 2)),
    64: ((64, 4, 3), (128, 4, 2), (32, 4, 3), (64, 4, 2), (64, 8, 3), (128, 8, 3)),
    128: ((64, 8, 3), (128, 8, 2), (64, 4, 3), (64, 8, 2), (128, 8, 3), (32, 8, 4)),
}
NAIVE_TILES = ((64, 4), (32, 2), (128, 4), (32, 4))


@dataclass(frozen=True)
class Candidates:
    """Configs of one variant to try for one batch; `skipped` says why there are none."""

    configs: tuple[Config, ...] = ()
    skipped: str = ""


def power_above(number: int) -> int:
    """The least power of two that is not less."""
    return 1 << (number - 1).bit_length()


def candidates(batch: Batch, multiprocessors: int) -> dict[str, Candidates]:
    """What a sweep tries, by the variants' names."""
    return {name: propose(batch, multiprocessors) for name, propose in SPACES.items()}


def tile_rows(batch: Batch) -> tuple[int, ...]:
    """Rows of a query tile that suit the batch: none narrower than a KV head's query heads."""
    group = batch.layout.num_query_heads // batch.layout.num_kv_heads
    narrowest = min(64, max(MIN_ROWS, power_above(group)))
    rows = batch.max_query_len * group
    if batch.max_query_len == 1:
        return (narrowest,)
    if rows <= 64:
        fitting = power_above(rows)
        return tuple(sorted({narrowest, max(narrowest, fitting // 2), max(narrowest, fitting)}))
    if statistics.median(batch.query_lens) * group <= narrowest:  # mostly decode beside some prompts
        return (narrowest, 2 * narrowest, max(64, 2 * narrowest))
    return (64, 128)


def query_blocks(batch: Batch, block_m: int) -> int:
    """Query tiles of all sequences and KV heads."""
    group = batch.layout.num_query_heads // batch.layout.num_kv_heads
    block_q = max(1, block_m // group)
    splits = -(-group // block_m)
    return sum(-(-query // block_q) for query in batch.query_lens) * batch.layout.num_kv_heads * splits


def needs_segments(batch: Batch, block_m: int, multiprocessors: int) -> bool:
    """Whether the query tiles leave the GPU idle: too few of them, or one far longer than the others."""
    group = batch.layout.num_query_heads // batch.layout.num_kv_heads
    block_q = max(1, block_m // group)
    blocks = query_blocks(batch, block_m)
    if blocks < FULL_WAVES * multiprocessors:
        return True
    keys = sum(map(visible_keys, batch.query_lens, batch.context_lens)) * batch.layout.num_kv_heads / block_q
    return batch.max_seq_len > 0.5 * keys / multiprocessors


def segment_counts(batch: Batch, block_m: int, tile_size: int, multiprocessors: int) -> tuple[int, ...]:
    """Powers of two that give a multiprocessor about 2, 4 and 8 programs; a segment has at least one tile."""
    most = min(MAX_SEGMENTS, power_above(-(-batch.max_seq_len // tile_size)))
    even = 4 * multiprocessors / query_blocks(batch, block_m)
    middle = 2 ** round(math.log2(even))
    wanted = (min(most, max(2, count)) for count in (middle, middle // 2, middle * 2))
    return tuple(dict.fromkeys(count for count in wanted if count > 1))


def partials_bytes(batch: Batch, num_segments: int) -> int:
    layout = batch.layout
    padded = max(16, power_above(layout.head_size)) + 2
    return 4 * batch.num_query_tokens * layout.num_query_heads * num_segments * padded


def first(configs: Iterable[Config], most: int = MOST) -> tuple[Config, ...]:
    return tuple(dict.fromkeys(configs))[:most]


def tiled(variant: str, rows: Iterable[int], each: int) -> Iterable[Config]:
    """The best tiles in turn: the most promising of every number of rows, then the next."""
    rows = tuple(rows)
    for i in range(each):
        for block_m in rows:
            shapes = TILES[block_m]
            if i < len(shapes):
                tile_size, warps, stages = shapes[i]
                yield Config(variant, block_m, tile_size, num_warps=warps, num_stages=stages)


def naive(batch: Batch, multiprocessors: int) -> Candidates:
    pairs = sum(map(visible_keys, batch.query_lens, batch.context_lens))
    if pairs * batch.layout.num_query_heads * batch.layout.head_size > NAIVE_LIMIT:
        return Candidates(skipped="over 2^33 multiply-adds are too slow without matrix instructions")
    return Candidates(
        first(Config("naive", 1, tile, num_warps=warps, num_stages=2) for tile, warps in NAIVE_TILES)
    )


def prefix_prefill(batch: Batch, multiprocessors: int) -> Candidates:
    return Candidates(first(tiled("prefix_prefill", one_head_rows(batch), 4), 4))


def split(batch: Batch, multiprocessors: int) -> Candidates:
    return Candidates(first(tiled("split", one_head_rows(batch), 4), 4))


def one_head_rows(batch: Batch) -> tuple[int, ...]:
    """Rows of a query tile that holds one query head."""
    if batch.max_query_len <= 32:
        return (max(MIN_ROWS, power_above(batch.max_query_len)),)
    return (64, 128)


def qblock(batch: Batch, multiprocessors: int) -> Candidates:
    described = with_descriptors(batch.layout.head_size) if 128 in tile_rows(batch) else ()
    return Candidates(first((*described, *tiled("qblock", tile_rows(batch), 8))))


def with_descriptors(head_size: int) -> tuple[Config, ...]:
    """What the Hopper kernel's shared memory holds; elsewhere these run through pointers."""
    shapes = ((64, 2),) if head_size > 128 else ((128, 2), (64, 3))
    return tuple(
        Config("qblock", 128, tile, num_warps=8, num_stages=stages, descriptors=1) for tile, stages in shapes
    )


def segmented(batch: Batch, multiprocessors: int) -> Candidates:
    found = list(with_segments("segmented", batch, multiprocessors))
    if not found:
        return Candidates(skipped=f"{FULL_WAVES} waves or more of query tiles need no segments")
    return Candidates(first(found))


def with_segments(variant: str, batch: Batch, multiprocessors: int) -> Iterable[Config]:
    """Tiles of each number of rows that leaves the GPU idle, with numbers of segments that fill it."""
    rows = tuple(m for m in tile_rows(batch) if needs_segments(batch, m, multiprocessors))
    for config in tiled(variant, rows, 4):
        for count in segment_counts(batch, config.block_m, config.tile_size, multiprocessors):
            if partials_bytes(batch, count) <= PARTIALS_LIMIT:
                yield config._replace(num_segments=count)


def static_grid(batch: Batch, multiprocessors: int) -> Candidates:
    """Whole or with segments where those pay; as many programs as run at a time, or twice as many."""
    split_up = list(with_segments("static_grid", batch, multiprocessors))[: MOST // 4]
    whole = list(tiled("static_grid", tile_rows(batch), 4))

    def programs(configs: list[Config], factor: int) -> list[Config]:
        head_size = batch.layout.head_size
        return [
            config._replace(programs_per_sm=factor * resident(config, head_size, batch.dtype.itemsize))
            for config in configs
        ]

    found = [config for part in (split_up, whole) for factor in (1, 2) for config in programs(part, factor)]
    return Candidates(first(found))


def stream_k(batch: Batch, multiprocessors: int) -> Candidates:
    """As many programs as run at a time, or one fewer, each with the registers that they leave it."""
    reason = why_not()
    if reason is not None:
        return Candidates(skipped=reason)
    found = []
    for config in tiled("stream_k", tile_rows(batch), 4):
        most = resident(config, batch.layout.head_size, batch.dtype.itemsize)
        for programs in (most, max(1, most - 1)):
            registers = REGISTERS // (32 * config.num_warps * programs) // 8 * 8
            limit = registers if registers < MOST_REGISTERS else 0
            found.append(config._replace(programs_per_sm=programs, max_registers=limit))
    return Candidates(first(found))


def resident(config: Config, head_size: int, item_bytes: int) -> int:
    """About how many programs a multiprocessor of an H100 runs at a time: by shared memory and registers."""
    tiles = 2 * config.tile_size * max(1, config.num_stages - 1) + config.block_m
    return max(1, min(SHARED_BYTES // (tiles * head_size * item_bytes), RESIDENT_WARPS // config.num_warps))


SPACES: dict[str, Callable[[Batch, int], Candidates]] = {
    "naive": naive,
    "prefix_prefill": prefix_prefill,
    "split": split,
    "qblock": qblock,
    "segmented": segmented,
    "static_grid": static_grid,
    "stream_k": stream_k,
}


def runnable() -> tuple[str, ...]:
    """The variants that run on this vendor's GPUs."""
    return tuple(name for name in SPACES if name != "stream_k" or why_not() is None)
