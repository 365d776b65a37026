"""Which configs may be measured in which scenario, and why not the others."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from attn_kernels.core.config import Config
from attn_kernels.offline.resources import SHARED_LIMITS
from attn_kernels.tuning.problem import SearchProblem
from attn_kernels.tuning.scenarios.scenario import Scenario, Shape, shape_of
from attn_kernels.tuning.space.space import Gpu, Space, baselines, reason_against, space_at

SMALLEST_SHARED = {"nvidia": 101376, "amd": 65536, "cpu": 232448}  # of an architecture not in SHARED_LIMITS


@dataclass(frozen=True)
class Possible:
    """The problem to search; `spaces`: what each shape leaves of the config space; `dropped`: cells that
    were dropped, by reason."""

    problem: SearchProblem
    spaces: Mapping[Shape, Space]
    dropped: Mapping[str, int]


def gpu_of(facts: Mapping[str, str | int]) -> Gpu:
    """What rules need to know, from a device's facts."""
    arch = str(facts["arch"])
    vendor = "cpu" if arch == "cpu" else "nvidia" if arch.startswith("sm_") else "amd"
    shared = SHARED_LIMITS.get(arch, SMALLEST_SHARED[vendor])
    return Gpu(arch, vendor, shared, int(facts["multiprocessors"]))


def find_possible(
    scenarios: Sequence[Scenario], configs: Sequence[Config], gpu: Gpu, seed: int = 0
) -> Possible:
    """Apply all rules; a rival's fixed choice stays wherever it can work."""
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
        fixed = str(baselines(scenario.batch, gpu.vendor))
        candidates[scenario.id] = tuple(kept)
        always[scenario.id] = (fixed,) if fixed in kept else ()
    problem = SearchProblem(
        features={scenario.id: scenario.batch.features for scenario in scenarios},
        candidates=candidates,
        always=always,
        variants={str(config): config.variant for config in configs},
        seed=seed,
    )
    return Possible(problem, spaces, dict(dropped.most_common()))


def dropped_text(spaces: Mapping[Shape, Space]) -> str:
    """dropped.csv: every config that cannot work at a shape, and why."""
    lines = [
        f"{shape},{entry.config},{entry.reason}" for shape, space in spaces.items() for entry in space.dropped
    ]
    return "".join(f"{line}\n" for line in ("shape,config,reason", *lines))
