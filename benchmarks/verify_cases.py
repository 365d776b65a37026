"""What `verify` runs: shapes at every layout and type, real sizes, random batches, every config."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.batches import (
    Batch,
    HeadLayout,
    chunked_prefill,
    decode,
    mixed,
    prefill,
    speculative,
    varlen,
)
from benchmarks.configs import config_text, distinct

K = 1024
GQA = (HeadLayout(32, 8), HeadLayout(28, 4), HeadLayout(16, 2))
MULTI_QUERY = HeadLayout(32, 1)
SIZES = (HeadLayout(32, 8, 64), HeadLayout(16, 4, 256), HeadLayout(32, 8, 80), HeadLayout(24, 8, 96))
PAGES = (16, 24, 128)
DTYPES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Case:
    """One batch and the configs to launch it with; None is the heuristic's choice."""

    part: str
    batch: Batch
    configs: tuple[Any, ...] = (None,)
    query_scale: float = 1.0
    seed: int = 0

    def group(self, config: Any) -> str:
        """The row of the table that a launch with this config counts in."""
        return f"{self.part} {config_text(config) if config else self.batch.kind} {self.batch.dtype_name}"


def shapes(
    layouts: Sequence[HeadLayout], batches: Sequence[Batch], dtypes: Sequence[torch.dtype] = DTYPES
) -> Iterator[Case]:
    """Every batch at every layout and type, page sizes in turn; every other one has a sharp softmax."""
    for i, layout in enumerate(layouts):
        for j, dtype in enumerate(dtypes):
            for k, batch in enumerate(batches):
                sharp = 4.0 if (i + k) % 2 else 1.0
                yield Case(
                    "shapes",
                    batch.at(layout, PAGES[(i + j + k) % len(PAGES)], dtype),
                    query_scale=sharp,
                    seed=k,
                )


def real_sizes() -> Iterator[Case]:
    """Contexts to 16K and batches to 64."""
    batches = (
        decode(64, 16 * K),
        decode(1, 16 * K),
        prefill(1, 16 * K),
        chunked_prefill(1, 2 * K, 16 * K),
        speculative(32, 4, 8 * K),
        mixed(64, 0.5, 16 * K, K),
    )
    for layout in GQA:
        for batch in batches:
            yield Case("real size", batch.at(layout))
    for batch in batches:
        yield Case("real size", batch.at(GQA[0], 128, torch.float16))


def random_batches(
    count: int,
    seed: int,
    layouts: Sequence[HeadLayout],
    dtypes: Sequence[torch.dtype] = DTYPES,
    **limits: int,
) -> Iterator[Case]:
    """`count` batches whose lengths, layout, page size, type and softmax sharpness all derive from `seed`."""
    for i in range(count):
        rng = random.Random(f"verify/{seed}/{i}")
        setting = (rng.choice(layouts), rng.choice(PAGES), rng.choice(dtypes))
        batch = varlen(seed * 1_000_003 + i, **limits).at(*setting)
        yield Case("random", batch, query_scale=rng.choice((1.0, 1.0, 4.0)), seed=i)


def every_config(batches: Sequence[Batch]) -> Iterator[Case]:
    """Each batch at every config of this vendor's generated modules."""
    for batch in batches:
        yield Case("config", batch, tuple(distinct()))


def full_cases(count: int, seed: int) -> list[Case]:
    odd = (
        decode(16, 2000),
        prefill(2, 1000),
        chunked_prefill(3, 300, 1500),
        speculative(16, 5, 1000),
        mixed(24, 0.5, 2000, 500),
        varlen(seed, max_seqs=32, max_context=4 * K),
    )
    for_configs = [
        build.at(*setting)
        for setting in (
            (GQA[0], 16, torch.bfloat16),
            (GQA[1], 128, torch.bfloat16),
            (GQA[2], 24, torch.float16),
            (SIZES[2], 16, torch.bfloat16),
            (MULTI_QUERY, 16, torch.float16),
        )
        for build in (decode(8, 2000), mixed(16, 0.5, 2000, 700), speculative(8, 7, 777))
    ]
    return [
        *shapes((*GQA, MULTI_QUERY, *SIZES), odd),
        *real_sizes(),
        *random_batches(count, seed, (*GQA, *SIZES)),
        *every_config(for_configs),
    ]


def quick_cases(count: int, seed: int) -> list[Case]:
    odd = (
        decode(8, 700),
        prefill(1, 500),
        chunked_prefill(2, 100, 600),
        speculative(8, 5, 300),
        mixed(8, 0.5, 600, 200),
    )
    return [
        *shapes((GQA[0], SIZES[2]), odd),
        *random_batches(min(count, 8), seed, GQA, max_seqs=16, max_context=2 * K),
        *every_config([mixed(8, 0.5, 600, 200).at(GQA[0])]),
    ]


def cpu_cases(count: int, seed: int) -> list[Case]:
    """A few tokens each, for Triton's interpreter, which cannot multiply bf16; only three small configs."""
    small = (
        decode(2, 37),
        prefill(1, 21),
        chunked_prefill(2, 5, 40),
        speculative(2, 3, 33),
        mixed(3, 0.5, 40, 12),
    )
    layouts = (HeadLayout(4, 2, 32), HeadLayout(6, 2, 40))
    half = (torch.float16,)
    cases = [
        *shapes(layouts, small, half),
        *random_batches(min(count, 3), seed, layouts, half, max_seqs=3, max_context=48),
    ]
    for case in every_config([mixed(3, 0.5, 40, 12).at(layouts[0], dtype=torch.float16)]):
        few = sorted(case.configs, key=lambda config: (config.block_m, config.tile_size))[:3]
        cases.append(Case(case.part, case.batch, tuple(few)))
    return cases


CASE_SETS: dict[str, Callable[[int, int], list[Case]]] = {
    "full": full_cases,
    "quick": quick_cases,
    "cpu": cpu_cases,
}
