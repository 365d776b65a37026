"""The configs that a method chooses, and what they cost where they were measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNTIMED, UNTIMED_PENALTY, Problem
from treegen.core.spec import Config
from treegen.core.tree import Tree, choose

Fit = Callable[[Problem], Tree]
"""Fits our trees. It is sent to other processes: a function of a module, or a partial of one."""

Decisions = tuple[Config, ...]
"""One config per scenario, in the order of a problem's rows."""


@dataclass(frozen=True)
class Choices:
    """Choices with their costs."""

    cost: npt.NDArray[np.int64]  # [choices] as in Problem
    scenarios: tuple[str, ...]  # [choices] ids


def decisions_of(tree: Tree, problem: Problem) -> Decisions:
    """Return a tree's choice in every scenario, also of a table that it was not fitted to."""
    rows = (dict(zip(problem.names, row, strict=True)) for row in problem.features.tolist())
    return tuple(choose(tree, values) for values in rows)


def score_decisions(decisions: Decisions, problem: Problem) -> Choices:
    """The costs of decisions by a table; a config that the table lacks counts as not measured."""
    index = {config: i for i, config in enumerate(problem.configs)}
    columns = [index.get(config) for config in decisions]
    cost = [UNTIMED if c is None else problem.cost[row, c] for row, c in enumerate(columns)]
    return Choices(np.array(cost, dtype=np.int64), problem.scenarios)


def joined(parts: Sequence[Choices]) -> Choices:
    """All choices of several parts, in order."""
    costs = np.concatenate([part.cost for part in parts])
    return Choices(costs, tuple(scenario for part in parts for scenario in part.scenarios))


def penalise_untimed(cost: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Costs in which every choice without a time, failed ones included, counts as 2x slower than the best."""
    return np.where(cost >= UNTIMED, UNTIMED_PENALTY, cost)
