"""What a tuning run measures: the scenarios and configs of one kernel."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from triton_tune.bench.pool import Subject
from triton_tune.core.problem import SearchProblem


@dataclass(frozen=True)
class Space:
    """The configs that may be measured on a GPU model."""

    problem: SearchProblem
    configs: Mapping[str, Hashable]  # by id, as `Workload.subject` measures them
    rows: Sequence[Mapping[str, str | int]]  # `configs` of run.yaml
    lines: Sequence[str]  # describe it


@dataclass(frozen=True)
class Workload:
    """What a command measures: the scenarios of one kernel."""

    kernel: str  # its name in run.yaml
    features: tuple[str, ...]
    subject: Subject
    space: Callable[[Mapping[str, str | int]], Space]  # of a device's facts, as in run.yaml
    source_hash: Callable[[], str]  # of all code on which the times depend
    timing: str  # on a GPU
    scenario_set: str
    provenance: Mapping[str, Any] = field(default_factory=dict)  # further keys of run.yaml
    # By scenario, the id of the config that the generated module launches on a device; empty without one.
    chosen: Callable[[torch.device], Mapping[str, str]] = lambda device: {}
