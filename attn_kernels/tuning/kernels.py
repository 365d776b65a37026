"""The kernels of the spec that attn-tune can measure: for each its features, configs and scenario sets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from attn_kernels.choose import mixed
from attn_kernels.core.config import Config
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.measure.batches import Batch
from attn_kernels.measure.device import kernel_source_hash, source_hash_with_choices
from attn_kernels.tuning.scenarios.scenario import FEATURES, Scenario
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.scenarios.steps import STEP_SETS
from attn_kernels.tuning.space.space import declared, declared_mixed

TILES = ("block_m", "tile_size")
OTHERS = ("num_warps", "num_stages")


@dataclass(frozen=True)
class TunedKernel:
    """A kernel of the spec, as tuning runs see it."""

    name: str
    features: tuple[str, ...]
    features_of: Callable[[Batch], Mapping[str, int]]
    parameters: tuple[str, ...]  # the launch parameters that tables have
    variants: tuple[str, ...]
    configs: Callable[[str], tuple[Config, ...]]  # of a vendor
    serves: Callable[[Batch], bool]  # whether a batch can be a scenario
    sets: Mapping[str, Callable[[int], tuple[Scenario, ...]]]  # scenario sets; the first is the default
    strategy: str  # the default
    source_hash: Callable[[], str]  # of all code on which the times depend
    in_parts: bool = False  # whether it launches each part of a recorded batch that was planned with parts

    @property
    def default_set(self) -> str:
        return next(iter(self.sets))


UNIFIED = TunedKernel(
    name="unified_attention",
    features=FEATURES,
    features_of=lambda batch: batch.features,
    parameters=(*TILES, "num_segments", *OTHERS, "programs_per_sm", "descriptors"),
    variants=tuple(name for name, variant in VARIANTS.items() if not variant.mixed),
    configs=declared,
    serves=lambda batch: True,
    sets=SETS,
    strategy="race",
    source_hash=kernel_source_hash,
    in_parts=True,
)
MIXED = TunedKernel(
    name=mixed.KERNEL,
    features=tuple(STEP_SETS["tiny"](0)[0].batch.mixed_features),
    features_of=lambda batch: batch.mixed_features,
    parameters=(*TILES, *OTHERS, "decode_tile"),
    variants=(
        *(way.variant for way in mixed.WITHOUT_KERNEL),
        *(name for name, variant in VARIANTS.items() if variant.mixed),
    ),
    configs=lambda vendor: declared_mixed(),
    serves=lambda batch: all(part.num_query_tokens for part in batch.parts),
    sets=STEP_SETS,
    strategy="full",  # it has few configs
    source_hash=source_hash_with_choices,
)
KERNELS = {kernel.name: kernel for kernel in (UNIFIED, MIXED)}
