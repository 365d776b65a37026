"""The config space, declared per variant as products of parameters, and what of it a shape leaves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

from attn_kernels.core.config import Config
from attn_kernels.tuning.scenarios.scenario import Shape
from attn_kernels.tuning.space.rules import Gpu, baselines, reason_against, reason_at_shape

__all__ = ["Dropped", "Gpu", "Space", "baselines", "declared", "reason_against", "space_at"]

VENDORS = ("nvidia", "amd", "cpu")


@dataclass(frozen=True)
class Dropped:
    """A config that cannot work at a shape, and why."""

    config: Config
    reason: str


@dataclass(frozen=True)
class Space:
    """What may be measured at a shape, in declared order, and the rest."""

    configs: tuple[Config, ...]
    dropped: tuple[Dropped, ...]


@dataclass(frozen=True)
class Row:
    """A product of parameters, under their letters in a config's name."""

    variant: str
    m: tuple[int, ...]
    t: tuple[int, ...]
    w: tuple[int, ...]
    s: tuple[int, ...]
    n: tuple[int, ...] = (1,)
    p: tuple[int, ...] = (1,)
    d: tuple[int, ...] = (0,)


SEGMENTS = (4, 8, 16, 32, 64)

ROWS = (
    Row("qblock", m=(16, 32, 64, 128), t=(32, 64, 128), w=(2, 4, 8), s=(2, 3, 4)),
    Row("qblock", m=(128,), t=(64, 128), w=(8,), s=(2, 3), d=(1,)),
    # Every number of segments is compiled for, so there are few tiles.
    Row("segmented", m=(16,), t=(32, 64), w=(2, 4), s=(3,), n=SEGMENTS),
    Row("segmented", m=(16,), t=(64, 128), w=(4,), s=(2,), n=SEGMENTS),
    Row("segmented", m=(32,), t=(64,), w=(4,), s=(3,), n=SEGMENTS),
    Row("segmented", m=(64,), t=(64,), w=(4,), s=(3,), n=(2, 4, 8, 16)),  # chunks of few, long prompts
    Row("segmented", m=(128,), t=(64,), w=(8,), s=(3,), n=(2, 4, 8)),
    Row("segmented", m=(16, 32, 64, 128), t=(16, 32), w=(4,), s=(3,), n=(16,)),  # vLLM's fixed choices
    # Of programs_per_sm only the launch depends: no compilation more.
    Row("static_grid", m=(16, 32), t=(32, 64), w=(4,), s=(3,), p=(2, 4)),
    Row("static_grid", m=(16,), t=(32, 64), w=(4,), s=(3,), n=(8, 16), p=(2, 4)),
    Row("static_grid", m=(64,), t=(32, 64), w=(4,), s=(3,), p=(1, 2, 4)),
    Row("static_grid", m=(64,), t=(64,), w=(4,), s=(3,), n=(8,), p=(1, 2)),
    Row("static_grid", m=(128,), t=(32,), w=(4,), s=(3,), p=(1, 2)),
    Row("static_grid", m=(128,), t=(64, 128), w=(8,), s=(2, 3), p=(1, 2)),
    Row("prefix_prefill", m=(16,), t=(64,), w=(4,), s=(2, 3)),
    Row("prefix_prefill", m=(64,), t=(32, 64), w=(4,), s=(2, 3)),
    Row("prefix_prefill", m=(128,), t=(32, 64, 128), w=(4, 8), s=(3,)),
    Row("split", m=(64, 128), t=(32, 64, 128), w=(4, 8), s=(2, 3)),
    Row("naive", m=(1,), t=(32,), w=(2, 4), s=(2,)),
    Row("naive", m=(1,), t=(64, 128), w=(4,), s=(2,)),
)


def declared(vendor: str) -> tuple[Config, ...]:
    """Every config of the space before rules, each once. Raises ValueError on an unknown vendor."""
    if vendor not in VENDORS:
        raise ValueError(f"vendor {vendor!r}: expected one of {', '.join(VENDORS)}")
    rows = [_for_amd(row) for row in ROWS if row.d == (0,)] if vendor == "amd" else ROWS
    return tuple(dict.fromkeys(config for row in rows for config in _configs(row)))


def space_at(shape: Shape, gpu: Gpu, configs: Sequence[Config]) -> Space:
    """Part the configs into those that may be measured at a shape, and those that cannot work there."""
    reasons = [(config, reason_at_shape(config, shape, gpu)) for config in configs]
    return Space(
        tuple(config for config, reason in reasons if reason is None),
        tuple(Dropped(config, reason) for config, reason in reasons if reason is not None),
    )


def _configs(row: Row) -> list[Config]:
    every = product(row.m, row.t, row.w, row.s, row.n, row.p, row.d)
    found = [
        Config(row.variant, m, t, num_segments=n, num_warps=w, num_stages=s, programs_per_sm=p, descriptors=d)
        for m, t, w, s, n, p, d in every
    ]
    return [config for config in found if _suits(config)]


def _suits(config: Config) -> bool:
    """Whether warps and stages suit the tile."""
    m, t, warps = config.block_m, config.tile_size, config.num_warps
    if warps == 2 and m * t > 1024:
        return False
    if warps == 4 and m >= 128 and t >= 128:  # spills at every head size
        return False
    if warps == 8 and not (m >= 128 or t >= 128 or (m >= 64 and t >= 64)):
        return False
    return config.num_stages <= 3 or t <= 32 or m * t <= 1024


def _for_amd(row: Row) -> Row:
    """The same tiles with the stages that pay there."""
    return replace(row, s=(1, 2) if len(row.s) > 1 else (2,))
