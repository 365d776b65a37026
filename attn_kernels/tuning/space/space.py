"""The config space: what the variants declare, and what a shape leaves of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from attn_kernels.choose.mixed import WITHOUT_KERNEL
from attn_kernels.core.config import Config
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.tuning.scenarios.scenario import Shape
from attn_kernels.tuning.space.rules import Gpu, baselines, reason_against, reason_at_shape

__all__ = [
    "DroppedConfig",
    "Gpu",
    "ShapeSpace",
    "baselines",
    "declared",
    "declared_mixed",
    "reason_against",
    "space_at",
]

VENDORS = ("nvidia", "amd", "cpu")


@dataclass(frozen=True)
class DroppedConfig:
    """A config that cannot work at a shape, and why."""

    config: Config
    reason: str


@dataclass(frozen=True)
class ShapeSpace:
    """The configs that may be measured at a shape, in declared order, and the others."""

    configs: tuple[Config, ...]
    dropped: tuple[DroppedConfig, ...]


def declared(vendor: str) -> tuple[Config, ...]:
    """Every config for whole batches that the variants declare, once; rules have dropped none yet.

    AMD GPUs have the same tiles, with the stages that pay there. Raises ValueError on an unknown vendor.
    """
    if vendor not in VENDORS:
        raise ValueError(f"vendor {vendor!r}: expected one of {', '.join(VENDORS)}")
    configs = []
    # First the variants whose query tiles hold several heads, then those of one head, then those of one row.
    variants = [variant for variant in VARIANTS.values() if not variant.mixed]
    for variant in sorted(variants, key=lambda variant: (variant.one_head, variant.one_row)):
        for grid in variant.grids:
            if vendor == "amd":
                if grid.D != (0,):
                    continue
                grid = replace(grid, S=(1, 2) if len(grid.S) > 1 else (2,))
            configs += [config for config in grid.configs(variant.name) if _suits(config)]
    return tuple(dict.fromkeys(configs))


def declared_mixed() -> tuple[Config, ...]:
    """Every config for mixed batches: in series, and those that the variants for mixed batches declare."""
    variants = [variant for variant in VARIANTS.values() if variant.mixed]
    configs = (c for variant in variants for grid in variant.grids for c in grid.configs(variant.name))
    return tuple(dict.fromkeys((*WITHOUT_KERNEL, *configs)))


def space_at(shape: Shape, gpu: Gpu, configs: Sequence[Config]) -> ShapeSpace:
    """Part the configs into those that may be measured at a shape and those that cannot work there."""
    reasons = [(config, reason_at_shape(config, shape, gpu)) for config in configs]
    return ShapeSpace(
        tuple(config for config, reason in reasons if reason is None),
        tuple(DroppedConfig(config, reason) for config, reason in reasons if reason is not None),
    )


def _suits(config: Config) -> bool:
    """Return whether the numbers of warps and stages suit the tile."""
    m, t, warps = config.block_m, config.tile_size, config.num_warps
    if warps == 2 and m * t > 1024:
        return False
    if warps == 4 and m >= 128 and t >= 128:  # it spills at every head size
        return False
    if warps == 8 and not (m >= 128 or t >= 128 or (m >= 64 and t >= 64)):
        return False
    return config.num_stages <= 3 or t <= 32 or m * t <= 1024
