"""What a way of choosing chooses, and what that costs where it was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNMEASURED, UNTIMED_PENALTY, Problem
from treegen.core.spec import Config
from treegen.core.tree import Tree, choose

Fit = Callable[[Problem], Tree]
"""How our trees are fitted. It goes to other processes: a function of a module, or a partial of one."""

Decisions = tuple[Config, ...]
"""A config a scenario, in the order of a problem's rows."""


@dataclass(frozen=True)
class Choices:
    """Choices that were judged. cost: [choices] int64, as in Problem; scenarios: [choices] their ids."""

    cost: npt.NDArray[np.int64]
    scenarios: tuple[str, ...]


def decide(tree: Tree, problem: Problem) -> Decisions:
    """What a tree chooses in every scenario, also in those of a table that it was not fitted to."""
    rows = (dict(zip(problem.names, row, strict=True)) for row in problem.features.tolist())
    return tuple(choose(tree, values) for values in rows)


def judge(decisions: Decisions, problem: Problem) -> Choices:
    """Look the decisions up in a table; a config that the table does not hold was not measured."""
    index = {config: i for i, config in enumerate(problem.configs)}
    columns = [index.get(config) for config in decisions]
    cost = [UNMEASURED if c is None else problem.cost[row, c] for row, c in enumerate(columns)]
    return Choices(np.array(cost, dtype=np.int64), problem.scenarios)


def joined(parts: Sequence[Choices]) -> Choices:
    """All choices of several, in order."""
    costs = np.concatenate([part.cost for part in parts])
    return Choices(costs, tuple(scenario for part in parts for scenario in part.scenarios))


def without_gaps(cost: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Costs in which every choice that has no time counts as one twice as slow as the best."""
    return np.where(cost >= UNMEASURED, UNTIMED_PENALTY, cost)
