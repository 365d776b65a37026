"""The configs that may be measured in each scenario, and why the others may not."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from attn_kernels.choose.mixed import SERIES
from attn_kernels.core.config import Config
from attn_kernels.measure.batches import Batch
from attn_kernels.offline.resources import SHARED_LIMITS
from attn_kernels.tuning.likeness import ATTENTION
from attn_kernels.tuning.scenarios.scenario import Scenario, Shape, shape_of
from attn_kernels.tuning.space.space import Gpu, ShapeSpace, baselines, reason_against, space_at
from triton_tune.core.problem import SearchProblem

# Bytes of shared memory that a block may have on an architecture that is not in SHARED_LIMITS.
SMALLEST_SHARED = {"nvidia": 101376, "amd": 65536, "cpu": 232448}


@dataclass(frozen=True)
class Possible:
    """The configs that a tuning run may measure."""

    problem: SearchProblem  # what strategies search
    spaces: Mapping[Shape, ShapeSpace]
    dropped: Mapping[str, int]  # cells that rules dropped, by reason


def gpu_of(facts: Mapping[str, str | int]) -> Gpu:
    """Return what rules need of a device, from its ``device_facts``."""
    arch = str(facts["arch"])
    vendor = "cpu" if arch == "cpu" else "nvidia" if arch.startswith("sm_") else "amd"
    shared = SHARED_LIMITS.get(arch, SMALLEST_SHARED[vendor])
    return Gpu(arch, vendor, shared, int(facts["multiprocessors"]))


def find_possible(
    scenarios: Sequence[Scenario],
    configs: Sequence[Config],
    gpu: Gpu,
    seed: int = 0,
    features_of: Callable[[Batch], Mapping[str, int]] = lambda batch: batch.features,
) -> Possible:
    """Apply all rules to all cells. vLLM's fixed choice, or else ``SERIES``, stays wherever it can work."""
    spaces = {
        shape: space_at(shape, gpu, configs) for shape in dict.fromkeys(shape_of(s.batch) for s in scenarios)
    }
    dropped: Counter[str] = Counter()
    candidates: dict[str, tuple[str, ...]] = {}
    always: dict[str, tuple[str, ...]] = {}
    for scenario in scenarios:
        space = spaces[shape_of(scenario.batch)]
        dropped.update(entry.reason for entry in space.dropped)
        kept = []
        for config in space.configs:
            reason = reason_against(config, scenario.batch, gpu)
            if reason is None:
                kept.append(str(config))
            else:
                dropped[reason] += 1
        fixed = str(SERIES if SERIES in configs else baselines(scenario.batch, gpu.vendor))
        candidates[scenario.id] = tuple(kept)
        always[scenario.id] = (fixed,) if fixed in kept else ()
    problem = SearchProblem(
        features={scenario.id: features_of(scenario.batch) for scenario in scenarios},
        candidates=candidates,
        always=always,
        variants={str(config): config.variant for config in configs},
        seed=seed,
        likeness=ATTENTION,
    )
    return Possible(problem, spaces, dict(dropped.most_common()))


def dropped_text(spaces: Mapping[Shape, ShapeSpace]) -> str:
    """The text of dropped.csv: every config that cannot work at a shape, and why."""
    lines = [
        f"{shape},{entry.config},{entry.reason}" for shape, space in spaces.items() for entry in space.dropped
    ]
    return "".join(f"{line}\n" for line in ("shape,config,reason", *lines))
