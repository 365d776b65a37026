"""What a way of choosing launches in each scenario, and how good that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, UNTIMED_PENALTY, Problem
from treegen.core.spec import Budget, Config
from treegen.core.table import Cells
from treegen.core.tree import Tree, choose, size

Fit = Callable[[Problem], Tree]
"""Fits our trees. It is sent to other processes: a function of a module, or a partial of one."""

Decisions = tuple[Config, ...]
"""One config per scenario, in the order of a problem's rows."""


@dataclass(frozen=True)
class Rule:
    """A rule that a method has fitted."""

    choose: Callable[[Problem], Decisions]
    leaves: int | None  # of its tree; None if it is not a single tree


Method = Callable[[Problem, Budget], Rule]
"""Learns a rule from a problem, within the depth and the leaves of a budget."""


@dataclass(frozen=True)
class Choices:
    """Choices with their costs."""

    cost: npt.NDArray[np.int64]  # [choices] as in Problem
    scenarios: tuple[str, ...]  # [choices] ids


@dataclass(frozen=True)
class Quality:
    """The quality of some choices.

    A slowdown is a choice's time over the best time in its scenario. All slowdowns are None for a winner
    table; `timed_slowdown` and `worst` are None where no choice has a time.
    """

    choices: int  # how many were scored
    agreement: float  # share that is the fastest config
    slowdown: float | None  # geometric mean; a choice without a time scores as 2x slower than the best
    timed_slowdown: float | None  # geometric mean over the choices that have a time
    percentile95: float | None  # the least slowdown that 95% do not exceed; without a time as in `slowdown`
    worst: float | None  # the greatest slowdown of a choice that has a time
    worst_scenario: str | None  # where that is; of equals the first id in the alphabet
    unmeasured: int  # choices that were not measured
    failed: int  # choices that failed or break a constraint

    @property
    def untimed(self) -> float:
        """The share of choices without a time: unmeasured, failed, or against a constraint."""
        return (self.unmeasured + self.failed) / self.choices


def tree_rule(tree: Tree) -> Rule:
    return Rule(lambda unseen: decisions_of(tree, unseen), size(tree))


def features_of(problem: Problem, known: Problem) -> npt.NDArray[np.int64]:
    """[scenarios, split_on] of a problem, in the column order of `known`."""
    return np.stack([problem.column(name) for name in known.split_on], axis=1)


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


def quality(choices: Choices, cells: Cells) -> Quality:
    """The figures of choices, of which there must be at least one."""
    cost, count = choices.cost, len(choices.cost)
    failed = int((cost >= FORBIDDEN).sum())
    unmeasured = int((cost >= UNTIMED).sum()) - failed
    agreement = float((cost == 0).sum()) / count
    if cells is Cells.WINNERS:
        return Quality(count, agreement, None, None, None, None, None, unmeasured, failed)
    scored = np.sort(penalise_untimed(cost))
    percentile95 = math.exp(int(scored[(95 * count + 99) // 100 - 1]) / UNIT)
    timed_slowdown, worst, where = None, None, None
    if (timed := cost[cost < UNTIMED]).size:
        timed_slowdown, worst = geomean(timed), math.exp(int(timed.max()) / UNIT)
        where = min(name for name, c in zip(choices.scenarios, cost, strict=True) if c == timed.max())
    mean = geomean(scored)
    return Quality(count, agreement, mean, timed_slowdown, percentile95, worst, where, unmeasured, failed)


def geomean(cost: npt.NDArray[np.int64]) -> float:
    """The geometric mean slowdown of these costs."""
    return math.exp(int(cost.sum()) / len(cost) / UNIT)
