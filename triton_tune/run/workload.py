"""What a tuning run measures: the scenarios and configs of one kernel."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_tune.bench.pool import Subject
from triton_tune.core.problem import SearchProblem


@dataclass(frozen=True)
class Workload:
    """What a command measures of one kernel on one GPU model."""

    kernel: str  # its name in run.yaml
    features: tuple[str, ...]
    subject: Subject
    problem: SearchProblem
    rows: Sequence[Mapping[str, str | int]]  # `configs` of run.yaml
    lines: Sequence[str]  # describe it
    source_hash: str  # of all code on which the times depend
    timing: str  # on a GPU
    scenario_set: str
    provenance: Mapping[str, Any] = field(default_factory=dict)  # further keys of run.yaml
    # By scenario, the id of the config that the generated module launches; empty without one.
    chosen: Callable[[], Mapping[str, str]] = dict
