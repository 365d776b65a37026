"""The kernels of the spec that `attn-tune` measures, each as a `Workload` of triton_tune."""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from attn_kernels.choose import mixed
from attn_kernels.choose.choices import INVARIANT as OF_INVARIANT_MODELS
from attn_kernels.choose.choices import KERNEL, Choices, choices_for
from attn_kernels.choose.packages import kernel_package
from attn_kernels.core.config import Config
from attn_kernels.measure.batches import Batch
from attn_kernels.tuning.measuring import TIMING, job_for, prepare
from attn_kernels.tuning.scenarios.scenario import FEATURES, digest
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.scenarios.steps import STEP_SETS
from attn_kernels.tuning.space.space import declared, declared_mixed, find_possible, gpu_of
from triton_tune.bench.pool import Workload
from triton_tune.core.problem import SearchProblem
from triton_tune.core.source import hash_of

# The files that determine a kernel's machine code, grid and arguments. Others only cost CPU time.
KERNEL_SOURCES = ("kernels/**/*.py", "core/config.py")
TILES = ("block_m", "tile_size")
OTHERS = ("num_warps", "num_stages")


def kernel_source_hash() -> str:
    """`hash_of` the kernels and of what describes their launches."""
    root = Path(__file__).resolve().parents[1]
    return hash_of(root, [path for pattern in KERNEL_SOURCES for path in root.glob(pattern)])


def source_hash_with_choices() -> str:
    """A hash of the kernels and of the generated modules that choose for the parts of a mixed batch."""
    folder = Path(str(kernel_package(KERNEL).__file__)).parent
    both = kernel_source_hash() + hash_of(folder, list(folder.glob("*.py")))
    return hashlib.sha256(both.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class TunedKernel:
    name: str
    features: tuple[str, ...]
    features_of: Callable[[Batch], Mapping[str, int]]
    parameters: tuple[str, ...]  # the launch parameters that tables have
    configs: Callable[[str], tuple[Config, ...]]  # of a vendor
    serves: Callable[[Batch], bool]  # whether a batch can be a scenario
    sets: Mapping[str, Callable[[int], tuple[Batch, ...]]]  # scenario sets; the first is the default
    strategy: str  # the default
    source_hash: Callable[[], str]  # of all code on which the times depend
    choose: Callable[[Choices, Batch], Config]  # by the generated module
    in_parts: bool = False  # whether it launches each part of a recorded batch that was planned with parts

    def workload(
        self,
        scenarios: Sequence[Batch],
        scenario_set: str,
        seed: int,
        device: torch.device,
        facts: Mapping[str, str | int],
    ) -> Workload:
        """What a run measures of this kernel in these scenarios, on a device with these facts of run.yaml."""
        name, gpu = f"{scenario_set} (digest {digest(scenarios)})", gpu_of(facts)
        kinds = Counter(scenario.kind for scenario in scenarios)
        configs = self.configs(gpu.vendor)
        problem, dropped = find_possible(scenarios, configs, gpu, seed, self.features_of)
        used = {str(c): c for c in configs if str(c) in problem.configs}
        return Workload(
            kernel=self.name,
            features=self.features,
            scenarios={scenario.name: scenario for scenario in scenarios},
            configs=used,
            prepare=prepare,
            job_for=job_for,
            problem=problem,
            rows=self._rows(used),
            lines=[f"{name}: {len(scenarios)} scenarios, {_counts(kinds)}", *_lines(problem, dropped)],
            source_hash=self.source_hash(),
            timing=TIMING,
            scenario_set=name,
            provenance={"seed": seed},
            chosen=lambda: {s.name: str(self.choose(choices_for(s.model, device), s)) for s in scenarios},
        )

    def _rows(self, configs: Mapping[str, Config]) -> list[dict[str, str | int]]:
        return [
            {"id": id, "variant": config.variant, **{name: getattr(config, name) for name in self.parameters}}
            for id, config in configs.items()
        ]


def _lines(problem: SearchProblem, dropped: Mapping[str, int]) -> list[str]:
    variants = Counter(problem.variants[config] for config in problem.configs)
    return [
        f"{len(problem.configs)} configs, {_counts(variants)}",
        f"{problem.possible} cells may be measured" + ("; the rules dropped:" if dropped else ""),
        *(f"  {count} {reason}" for reason, count in dropped.items()),
    ]


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


UNIFIED = TunedKernel(
    name=KERNEL,
    features=FEATURES,
    features_of=lambda batch: batch.features,
    parameters=(*TILES, *OTHERS, "tma"),
    configs=declared,
    serves=lambda batch: True,
    sets=SETS,
    strategy="race",
    source_hash=kernel_source_hash,
    choose=lambda choices, batch: choices.config(batch.lengths),
    in_parts=True,
)
MIXED = TunedKernel(
    name=mixed.KERNEL,
    features=tuple(STEP_SETS["tiny"](0)[0].mixed_features),
    features_of=lambda batch: batch.mixed_features,
    parameters=(*TILES, *OTHERS),
    configs=lambda vendor: declared_mixed(),
    serves=lambda batch: all(part.num_query_tokens for part in batch.parts),
    sets=STEP_SETS,
    strategy="full",  # it has few configs
    source_hash=source_hash_with_choices,
    choose=lambda choices, batch: choices.way(batch.parts),
)
INVARIANT = replace(
    UNIFIED,
    name=OF_INVARIANT_MODELS,
    parameters=(*TILES, *OTHERS),
    configs=partial(declared, batch_invariant=True),
    strategy="full",  # it has few configs
    choose=lambda choices, batch: UNIFIED.choose(
        choices_for(replace(choices.model, batch_invariant=True), choices.device), batch
    ),
)
KERNELS = {kernel.name: kernel for kernel in (UNIFIED, MIXED, INVARIANT)}
