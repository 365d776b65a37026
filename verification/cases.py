"""The cases of `verify`: random batches and features, real sizes, generated configs, huge caches."""

import dataclasses
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from attn_kernels import Config
from attn_kernels.choose.mixed import needs_parts
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.measure.batches import (
    Batch,
    HeadLayout,
    chunked_prefill,
    decode,
    mixed,
    prefill,
    speculative,
    varlen,
)
from attn_kernels.tuning.space.rules import power_above
from benchmarks.common.configs import all_generated
from benchmarks.common.space import NAIVE_TILES, TILES, candidates, runnable, with_descriptors
from verification.features import LaunchFeatures, draw

K = 1024
GQA = (HeadLayout(32, 8), HeadLayout(28, 4), HeadLayout(16, 2))
MULTI_QUERY = HeadLayout(32, 1)
SIZES = (HeadLayout(32, 8, 64), HeadLayout(16, 4, 256), HeadLayout(32, 8, 80), HeadLayout(24, 8, 96))
PAGES = (8, 16, 24, 32, 48, 64, 100, 128, 272, 528, 1024)
HOPPER_PAGES = (16, 128, 48, 256, 64)
DTYPES = (torch.bfloat16, torch.float16)
WINDOWS = (1, 17, 128, 1000)
HEAD_SIZES = range(64, 257, 8)
HEADS = ((32, 8), (28, 4), (16, 2), (32, 1), (16, 16), (24, 8), (64, 8))  # query and KV heads
EVERY_SIZE = tuple(HeadLayout(*HEADS[i % len(HEADS)], size) for i, size in enumerate(HEAD_SIZES))
SETTINGS = 2 * len(EVERY_SIZE)  # of the random batches; a setting is what kernels are compiled for
MULTIPROCESSORS = 132
PLAIN = LaunchFeatures()


class PartConfigs(NamedTuple):
    """The configs of a mixed batch's parts."""

    decodes: Config
    prompts: Config

    def __str__(self) -> str:
        return f"{self.decodes} then {self.prompts}"


@dataclass(frozen=True)
class VerifyCase:
    """A batch, its features and the configs to launch it with."""

    part: str  # of the run, such as `random` or `huge`
    batch: Batch
    configs: tuple[Config | None, ...]  # None: the generated module's choice
    features: LaunchFeatures = PLAIN
    query_scale: float = 1.0
    seed: int = 0
    pairs: tuple[PartConfigs, ...] = ()  # configs of both parts, with which the batch is launched as well
    far: int = 0  # elements of a cache whose used pages lie at its end; 0: the cache holds no more than these

    def __str__(self) -> str:
        return f"{self.part} {self.seed}: {self.batch}, {self.features}"


def in_pairs(case: VerifyCase) -> VerifyCase:
    """Launch a case in parts as well, with each of its configs for one part and the next for the other."""
    if case.batch.num_seqs < 2:
        return case
    configs = [config for config in case.configs if config is not None and not needs_parts(config)]
    pairs = tuple(map(PartConfigs, configs, [*configs[1:], *configs[:1]]))
    return dataclasses.replace(case, pairs=pairs)


def random_config(variant: str, rng: random.Random, head_size: int) -> Config:
    """Draw a tile that fits the shared memory of a large GPU, and the variant's other parameters."""
    if variant == "naive":
        tile, warps = rng.choice(NAIVE_TILES)
        return Config(variant, 1, tile, num_warps=warps, num_stages=2)
    shapes = [
        (block_m, *shape)
        for block_m, shapes in TILES.items()
        for shape in shapes
        if (block_m + 2 * shape[0] * shape[2]) * head_size <= 100 * K
    ]
    block_m, tile, warps, stages = rng.choice(shapes)
    config = Config(variant, block_m, tile, num_warps=warps, num_stages=stages)
    if variant == "segmented":
        return config._replace(num_segments=rng.choice((2, 3, 8, 16, 64)), device_segments=rng.choice((0, 1)))
    if variant == "static_grid":
        segments, programs = rng.choice((1, 1, 4, 16)), rng.choice((1, 2, 4))
        on_gpu = int(segments > 1 and rng.random() < 0.5)
        return config._replace(num_segments=segments, programs_per_sm=programs, device_segments=on_gpu)
    if variant == "stream_k":
        return config._replace(programs_per_sm=rng.choice((1, 2, 3, 6)))
    return config


def with_empty(batch: Batch, rng: random.Random) -> Batch:
    """Insert up to two sequences that have no query tokens, and perhaps no keys."""
    queries, contexts = list(batch.query_lens), list(batch.context_lens)
    for context in rng.choice(((), (), (50,), (0,), (0, 300))):
        place = rng.randint(0, len(queries))
        queries.insert(place, 0)
        contexts.insert(place, context)
    return dataclasses.replace(batch, query_lens=tuple(queries), context_lens=tuple(contexts))


def random_cases(
    count: int, seed: int, layouts: Sequence[HeadLayout] = EVERY_SIZE, settings: int = SETTINGS, **limits: int
) -> Iterator[VerifyCase]:
    """Yield `count` batches, all drawn from `seed`.

    Their configs are the module's choice, one of every variant, and one of each variant of the Hopper kernel.
    Each combination of a layout, page size, types, features and configs must be compiled. Therefore only
    `settings` combinations are drawn, half of them with fp8 caches. `limits` are those of `varlen`.
    """
    for i in range(count):
        number = i % settings
        rng = random.Random(f"verify setting/{seed}/{number}")
        layout = layouts[number % len(layouts)]
        features = draw(rng, fp8=number >= settings // 2)
        configs = tuple(random_config(name, rng, layout.head_size) for name in runnable())
        by_hopper = tuple(map(rng.choice, hopper_configs(layout)))
        # Odd numbers have pages that the Hopper kernel reads.
        page = rng.choice(HOPPER_PAGES) if number % 2 else PAGES[number // 2 % len(PAGES)]
        setting = (layout, page, rng.choice(DTYPES))
        rng = random.Random(f"verify batch/{seed}/{i}")
        if features.window:
            features = dataclasses.replace(features, window=rng.choice(WINDOWS))
        sizes = limits or {
            "max_seqs": 24,
            "max_context": rng.choice((256, 2 * K, 4 * K, 4 * K, 4 * K, 16 * K)),
            "max_tokens": 24 * K,
        }
        batch = with_empty(varlen(seed * 1_000_003 + i, **sizes).at(*setting), rng)
        scale = rng.choice((1.0, 1.0, 4.0))
        yield VerifyCase("random", batch, (None, *configs, *by_hopper), features, scale, i)


def hopper_configs(layout: HeadLayout) -> tuple[tuple[Config, ...], ...]:
    """Return configs of the Hopper kernel: those of prompts, of decodes, and of both, which need parts."""
    rows = max(16, power_above(layout.num_query_heads // layout.num_kv_heads))
    tiles = (64,) if layout.head_size > 128 else (64, 128)
    shares = tuple(
        Config("stream_k", rows, tile, programs_per_sm=programs, descriptors=1)
        for tile in tiles
        for programs in (1, 2)
        if rows <= 64
    )
    pods = tuple(config for grid in VARIANTS["pod"].grids for config in grid.configs("pod"))
    by_role = (with_descriptors(layout.head_size), shares, pods if layout.head_size <= 128 else ())
    return tuple(configs for configs in by_role if configs)


def descriptor_cases(count: int, seed: int) -> Iterator[VerifyCase]:
    """Yield random batches that the Hopper kernel supports: pages of whole 16 tokens, no score options."""
    layouts = (*GQA, HeadLayout(32, 32), MULTI_QUERY, *SIZES[:2])
    for i in range(count):
        rng = random.Random(f"verify descriptors/{seed}/{i}")
        number = i % 14
        layout = layouts[number % len(layouts)]
        setting = (layout, HOPPER_PAGES[number % len(HOPPER_PAGES)], DTYPES[number % 2])
        batch = with_empty(varlen(seed * 1_000_003 + i, max_seqs=12, max_tokens=24 * K).at(*setting), rng)
        features = LaunchFeatures(strides=("", "fused")[number % 3 % 2])
        configs = tuple(config for configs in hopper_configs(layout) for config in configs)
        yield VerifyCase("descriptors", batch, configs, features, rng.choice((1.0, 4.0)), i)


def real_sizes() -> Iterator[VerifyCase]:
    """Yield contexts to 16K and batches to 64 with the chosen config and each variant's first candidate."""
    batches = (
        decode(64, 16 * K),
        decode(1, 16 * K),
        prefill(1, 16 * K),
        chunked_prefill(1, 2 * K, 16 * K),
        speculative(32, 4, 8 * K),
        mixed(64, 0.5, 16 * K, K),
    )
    every = [batch.at(layout) for layout in GQA for batch in batches]
    every += [batch.at(GQA[0], 128, torch.float16) for batch in batches]
    for i, batch in enumerate(every):
        spaces = candidates(batch, MULTIPROCESSORS).values()
        first = [space.configs[0] for space in spaces if space.configs]
        yield VerifyCase("real size", batch, (None, *first), seed=i)


def every_config(batches: Sequence[Batch]) -> Iterator[VerifyCase]:
    """Yield each batch with every config of this vendor's generated modules."""
    for i, batch in enumerate(batches):
        yield VerifyCase("generated", batch, tuple(all_generated()), seed=i)


def huge(elements: int = 2**31 + 2**20) -> Iterator[VerifyCase]:
    """Yield caches of more than 2^31 elements whose used pages lie at the end, in bf16 and fp8."""
    settings = ((GQA[0], 16, False), (GQA[1], 528, False), (GQA[0], 16, True), (SIZES[0], 1024, False))
    for i, (layout, page, fp8) in enumerate(settings):
        batch = Batch("far pages", "huge", (1, 70, 1), (700, 500, 33), layout, page)
        rng = random.Random(f"huge/{i}")
        configs = tuple(random_config(name, rng, layout.head_size) for name in runnable())
        yield VerifyCase("huge", batch, configs, LaunchFeatures(fp8=fp8), seed=i, far=elements)


def full_cases(count: int, seed: int) -> list[VerifyCase]:
    """Return all parts, with `count` random batches."""
    settings = (
        (GQA[0], 16, torch.bfloat16),
        (GQA[1], 128, torch.bfloat16),
        (GQA[2], 24, torch.float16),
        (SIZES[2], 16, torch.bfloat16),
        (MULTI_QUERY, 16, torch.float16),
    )
    small = [
        build.at(*setting)
        for setting in settings
        for build in (decode(8, 2000), mixed(16, 0.5, 2000, 700), speculative(8, 7, 777))
    ]
    return [
        *map(in_pairs, random_cases(count, seed)),
        *map(in_pairs, descriptor_cases(count // 5, seed)),
        *map(in_pairs, real_sizes()),
        *every_config(small),
        *huge(),
    ]


def quick_cases(count: int, seed: int) -> list[VerifyCase]:
    """Return fewer and smaller batches."""
    drawn = random_cases(min(count, 40), seed, settings=10, max_seqs=16, max_context=2 * K, max_tokens=8 * K)
    return [
        *map(in_pairs, drawn),
        *every_config([mixed(8, 0.5, 600, 200).at(GQA[0])]),
        *list(huge())[:1],
    ]


def cpu_cases(count: int, seed: int) -> list[VerifyCase]:
    """Return batches of a few tokens, for Triton's interpreter."""
    layouts = (HeadLayout(4, 2, 32), HeadLayout(6, 2, 40))
    limits = {"max_seqs": 3, "max_context": 48, "max_tokens": 100}
    cases = list(map(in_pairs, random_cases(min(count, 4), seed, layouts, **limits)))
    far = next(huge(1 << 16))
    batch = dataclasses.replace(far.batch, query_lens=(1, 3), context_lens=(20, 33)).at(layouts[0])
    return [*cases, dataclasses.replace(far, batch=batch, configs=far.configs[3:])]


CASE_SETS: dict[str, Callable[[int, int], list[VerifyCase]]] = {
    "full": full_cases,
    "quick": quick_cases,
    "cpu": cpu_cases,
}
