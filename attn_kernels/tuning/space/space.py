"""The config space, declared per variant as products of parameters, and what of it a shape leaves."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attn_kernels.core.config import Config
from attn_kernels.kernels.registry import VARIANTS
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


def declared(vendor: str) -> tuple[Config, ...]:
    """Every config of the space before rules, each once. Raises ValueError on an unknown vendor."""
    if vendor not in VENDORS:
        raise ValueError(f"vendor {vendor!r}: expected one of {', '.join(VENDORS)}")
    configs = []
    # First the variants whose query tiles hold all heads of a group, then those of one head, then of one row.
    for variant in sorted(VARIANTS.values(), key=lambda variant: (variant.one_head, variant.one_row)):
        for grid in variant.grids:
            if vendor == "amd":
                if grid.descriptors != (0,):
                    continue
                grid = replace(grid, num_stages=(1, 2) if len(grid.num_stages) > 1 else (2,))
            configs += [config for config in grid.configs(variant.name) if _suits(config)]
    return tuple(dict.fromkeys(configs))


def space_at(shape: Shape, gpu: Gpu, configs: Sequence[Config]) -> Space:
    """Part the configs into those that may be measured at a shape, and those that cannot work there."""
    reasons = [(config, reason_at_shape(config, shape, gpu)) for config in configs]
    return Space(
        tuple(config for config, reason in reasons if reason is None),
        tuple(Dropped(config, reason) for config, reason in reasons if reason is not None),
    )


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
