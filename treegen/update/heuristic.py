"""What a build holds in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treegen.core.problem import Problem
from treegen.core.tree import Tree
from treegen.crossval.evaluate import Evaluation
from treegen.update.keep import Kept


@dataclass(frozen=True)
class Heuristic:
    """One device's compiled tree and what it was compiled from. evaluation: of trees fitted afresh. kept: how
    much of yesterday's tree it is."""

    problem: Problem
    tree: Tree
    evaluation: Evaluation | None
    kept: Kept


@dataclass(frozen=True)
class Build:
    """files: every output text by its path below the output folder."""

    heuristics: tuple[Heuristic, ...]
    files: Mapping[str, str]
