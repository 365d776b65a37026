"""What a build holds in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treegen.evaluate import Evaluation
from treegen.problem import Problem
from treegen.tree import Tree


@dataclass(frozen=True)
class Heuristic:
    """One device's compiled tree and what it was compiled from."""

    problem: Problem
    tree: Tree
    evaluation: Evaluation | None


@dataclass(frozen=True)
class Build:
    """files: every output text by its path below the output folder."""

    heuristics: tuple[Heuristic, ...]
    files: Mapping[str, str]
