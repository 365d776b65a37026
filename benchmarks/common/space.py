"""The configs of each variant that a sweep tries for a batch, or the reason why it tries none."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from attn_kernels import Config
from attn_kernels.kernels.stream_k import why_not
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.roofline import visible_keys
from attn_kernels.offline.resources import SHARED_LIMITS

MOST = 12  # configs tried of a variant
MIN_ROWS = 16  # of a query tile
FULL_WAVES = 4  # a batch of this many query tiles a multiprocessor needs no segments
MAX_SEGMENTS = 64
# Multiply-adds of naive's products, which use no matrix instruction: about 6 ms on an H100.
NAIVE_LIMIT = 1 << 33
SHARED_BYTES = SHARED_LIMITS["sm_90"]  # of a multiprocessor of an H100
REGISTERS, MOST_REGISTERS = 65536, 255  # of a multiprocessor, and of a thread
RESIDENT_WARPS = 12  # whose threads have 168 registers each
PARTIALS_LIMIT = 1 << 30  # bytes of the segments' partial results

# (tile size, warps, stages) by rows of a query tile; the most promising come first.
TILES: dict[int, tuple[tuple[int, int, int], ...]] = {
    16: ((64, 4, 3), (128, 4, 2), (64, 2, 3), (32, 2, 4), (32, 4, 3), (128, 4, 3), (64, 4, 2), (128, 8, 2)),
    32: ((64, 4, 3), (128, 4, 2), (32, 4, 3), (64, 4, 2), (32, 2, 3), (128, 8, 2)),
    64: ((64, 4, 3), (128, 4, 2), (32, 4, 3), (64, 4, 2), (64, 8, 3), (128, 8, 3)),
    128: ((64, 8, 3), (128, 8, 2), (64, 4, 3), (64, 8, 2), (128, 8, 3), (32, 8, 4)),
}
NAIVE_TILES = ((64, 4), (32, 2), (128, 4), (32, 4))


@dataclass(frozen=True)
class Candidates:
    """Configs of one variant to try for one batch."""

    configs: tuple[Config, ...] = ()
    skipped: str = ""  # why there are none


def power_above(number: int) -> int:
    """Return the least power of two that is at least `number`."""
    return 1 << (number - 1).bit_length()


def candidates(batch: Batch, multiprocessors: int) -> dict[str, Candidates]:
    """Return what a sweep tries, by variant."""
    return {name: propose(batch, multiprocessors) for name, propose in SPACES.items()}


def group_size(batch: Batch) -> int:
    """Return the query heads of a KV head."""
    return batch.layout.num_query_heads // batch.layout.num_kv_heads


def tile_rows(batch: Batch) -> tuple[int, ...]:
    """Return the rows of a query tile that suit the batch; a tile holds all query heads of a KV head."""
    group = group_size(batch)
    narrowest = min(64, max(MIN_ROWS, power_above(group)))
    rows = batch.max_query_len * group
    if batch.max_query_len == 1:
        return (narrowest,)
    if rows <= 64:
        fitting = power_above(rows)
        return tuple(sorted({narrowest, max(narrowest, fitting // 2), max(narrowest, fitting)}))
    if statistics.median(batch.query_lens) * group <= narrowest:  # mostly decode, and some prompts
        return (narrowest, 2 * narrowest, max(64, 2 * narrowest))
    return (64, 128)


def query_blocks(batch: Batch, block_m: int) -> int:
    """Return the number of query tiles of all sequences and KV heads."""
    block_q = max(1, block_m // group_size(batch))
    splits = -(-group_size(batch) // block_m)
    return sum(-(-query // block_q) for query in batch.query_lens) * batch.layout.num_kv_heads * splits


def needs_segments(batch: Batch, block_m: int, multiprocessors: int) -> bool:
    """Tell whether the query tiles leave the GPU idle: they are few, or one takes far longer than others."""
    if query_blocks(batch, block_m) < FULL_WAVES * multiprocessors:
        return True
    block_q = max(1, block_m // group_size(batch))
    keys = sum(map(visible_keys, batch.query_lens, batch.context_lens)) * batch.layout.num_kv_heads / block_q
    return batch.max_seq_len > 0.5 * keys / multiprocessors


def segment_counts(batch: Batch, block_m: int, tile_size: int, multiprocessors: int) -> tuple[int, ...]:
    """Return powers of two for about 2, 4 and 8 programs a multiprocessor; a segment has a tile at least."""
    most = min(MAX_SEGMENTS, power_above(-(-batch.max_seq_len // tile_size)))
    even = 4 * multiprocessors / query_blocks(batch, block_m)
    middle = 2 ** round(math.log2(even))
    counts = (min(most, max(2, count)) for count in (middle, middle // 2, middle * 2))
    return tuple(dict.fromkeys(count for count in counts if count > 1))


def partials_bytes(batch: Batch, num_segments: int) -> int:
    """Return the bytes of the segments' partial results."""
    layout = batch.layout
    padded = max(16, power_above(layout.head_size)) + 2
    return 4 * batch.num_query_tokens * layout.num_query_heads * num_segments * padded


def first(configs: Iterable[Config], most: int = MOST) -> Candidates:
    """Return the first `most` distinct configs."""
    return Candidates(tuple(dict.fromkeys(configs))[:most])


def tiled(variant: str, rows: Sequence[int], each: int) -> Iterable[Config]:
    """Yield the most promising tile of every number of rows, then the second of each, up to `each`."""
    for i in range(each):
        for block_m in rows:
            for tile_size, warps, stages in TILES[block_m][i : i + 1]:
                yield Config(variant, block_m, tile_size, num_warps=warps, num_stages=stages)


def naive(batch: Batch, multiprocessors: int) -> Candidates:
    pairs = sum(map(visible_keys, batch.query_lens, batch.context_lens))
    if pairs * batch.layout.num_query_heads * batch.layout.head_size > NAIVE_LIMIT:
        return Candidates(skipped="over 2^33 multiply-adds are too slow without matrix instructions")
    return first(Config("naive", 1, tile, num_warps=warps, num_stages=2) for tile, warps in NAIVE_TILES)


def one_head(variant: str, batch: Batch, multiprocessors: int) -> Candidates:
    """Return configs of a variant whose query tiles hold one query head."""
    rows = (max(MIN_ROWS, power_above(batch.max_query_len)),) if batch.max_query_len <= 32 else (64, 128)
    return first(tiled(variant, rows, 4), 4)


def qblock(batch: Batch, multiprocessors: int) -> Candidates:
    described = with_descriptors(batch.layout.head_size) if 128 in tile_rows(batch) else ()
    return first((*described, *tiled("qblock", tile_rows(batch), 8)))


def with_descriptors(head_size: int) -> tuple[Config, ...]:
    """Return configs that fit the Hopper kernel's shared memory; other GPUs launch them with pointers."""
    shapes = ((64, 2),) if head_size > 128 else ((128, 2), (64, 3))
    return tuple(
        Config("qblock", 128, tile, num_warps=8, num_stages=stages, descriptors=1) for tile, stages in shapes
    )


def segmented(batch: Batch, multiprocessors: int) -> Candidates:
    candidates = first(with_segments("segmented", batch, multiprocessors))
    no_need = f"{FULL_WAVES} waves or more of query tiles need no segments"
    return candidates if candidates.configs else Candidates(skipped=no_need)


def with_segments(variant: str, batch: Batch, multiprocessors: int) -> Iterable[Config]:
    """Yield tiles that leave the GPU idle, with numbers of segments that fill it."""
    rows = tuple(m for m in tile_rows(batch) if needs_segments(batch, m, multiprocessors))
    for config in tiled(variant, rows, 4):
        for count in segment_counts(batch, config.block_m, config.tile_size, multiprocessors):
            if partials_bytes(batch, count) <= PARTIALS_LIMIT:
                yield config._replace(num_segments=count)


def static_grid(batch: Batch, multiprocessors: int) -> Candidates:
    """Try segments where the GPU is idle, and whole contexts; as many programs as fit at a time, or twice."""
    segmented_configs = list(with_segments("static_grid", batch, multiprocessors))[: MOST // 4]
    whole = list(tiled("static_grid", tile_rows(batch), 4))
    return first(
        config._replace(programs_per_sm=factor * resident(config, batch))
        for configs in (segmented_configs, whole)
        for factor in (1, 2)
        for config in configs
    )


def stream_k(batch: Batch, multiprocessors: int) -> Candidates:
    """Try as many programs as fit at a time, or one fewer, each with all registers that are left to it."""
    reason = why_not()
    if reason is not None:
        return Candidates(skipped=reason)
    configs = []
    for config in tiled("stream_k", tile_rows(batch), 4):
        most = resident(config, batch)
        for programs in (most, max(1, most - 1)):
            registers = REGISTERS // (32 * config.num_warps * programs) // 8 * 8
            limit = registers if registers < MOST_REGISTERS else 0
            configs.append(config._replace(programs_per_sm=programs, max_registers=limit))
    return first(configs)


def resident(config: Config, batch: Batch) -> int:
    """Estimate how many programs a multiprocessor of an H100 holds, by shared memory and registers."""
    row_bytes = batch.layout.head_size * batch.dtype.itemsize
    rows = 2 * config.tile_size * max(1, config.num_stages - 1) + config.block_m
    return max(1, min(SHARED_BYTES // (rows * row_bytes), RESIDENT_WARPS // config.num_warps))


SPACES: dict[str, Callable[[Batch, int], Candidates]] = {
    "naive": naive,
    "prefix_prefill": partial(one_head, "prefix_prefill"),
    "split": partial(one_head, "split"),
    "qblock": qblock,
    "segmented": segmented,
    "static_grid": static_grid,
    "stream_k": stream_k,
}


def runnable() -> tuple[str, ...]:
    """Return the variants that run on this vendor's GPUs."""
    return tuple(name for name in SPACES if name != "stream_k" or why_not() is None)
