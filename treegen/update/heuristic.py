"""The result of a build in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treegen.core.problem import Problem
from treegen.core.tree import Tree
from treegen.crossval.folds import Evaluation
from treegen.update.keep import ChosenTree


@dataclass(frozen=True)
class DeviceHeuristic:
    """One device's finished tree and its inputs."""

    problem: Problem
    tree: Tree  # `chosen.tree` with guards
    evaluation: Evaluation | None  # held-out figures of fresh trees; None for a small table
    chosen: ChosenTree


@dataclass(frozen=True)
class Build:
    """Everything that a build writes."""

    heuristics: tuple[DeviceHeuristic, ...]
    files: Mapping[str, str]  # texts by their path below the output folder
