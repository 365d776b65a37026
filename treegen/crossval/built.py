"""What a build makes of each table, before it is printed and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treegen.core.heuristic import Heuristic
from treegen.core.problem import Problem
from treegen.crossval.folds import Evaluation
from treegen.crossval.score import Score
from treegen.fit.fit import Origin


@dataclass(frozen=True)
class DeviceHeuristic:
    """What one device's module is printed from, and its inputs."""

    problem: Problem
    heuristic: Heuristic
    score: Score
    origin: Origin
    evaluation: Evaluation | None  # held-out figures of fresh fits; None for a small table
    why_fresh: str | None = None  # why there were rows that could not be kept


@dataclass(frozen=True)
class Build:
    """Everything that a build writes."""

    heuristics: tuple[DeviceHeuristic, ...]
    files: Mapping[str, str]  # texts by their path below the output folder
