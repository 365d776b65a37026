"""What a way of choosing launches in each scenario, and how good that is."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.expr import names
from treegen.core.heuristic import Heuristic, choose
from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, UNTIMED_PENALTY, Problem
from treegen.core.spec import Config
from treegen.core.table import Cells
from treegen.fit.decide import ABSENT, Scenarios

Decisions = tuple[Config, ...]
"""One config per scenario, in the order of a problem's rows."""


@dataclass(frozen=True)
class Rule:
    """A rule that a method has fitted."""

    choose: Callable[[Problem], Decisions]
    leaves: int | None  # of its tree; None if it is not a single tree


Method = Callable[[Problem, int], Rule]
"""Learns a rule from a problem, with at most so many leaves."""


@dataclass(frozen=True)
class Choices:
    """Choices with their costs."""

    cost: npt.NDArray[np.int64]  # [choices] as in Problem
    scenarios: tuple[str, ...]  # [choices] ids


@dataclass(frozen=True)
class Quality:
    """The quality of some choices.

    A slowdown is a choice's time over the best time in its scenario. All slowdowns are None for a winner
    table; `worst` is None where no choice has a time.
    """

    choices: int  # how many were scored
    agreement: float  # share that is the fastest config
    slowdown: float | None  # geometric mean; a choice without a time scores as 2x slower than the best
    percentile95: float | None  # the least slowdown that 95% do not exceed; without a time as in `slowdown`
    worst: float | None  # the greatest slowdown of a choice that has a time
    worst_scenario: str | None  # where that is; of equals the first id in the alphabet
    unmeasured: int  # choices that were not measured
    failed: int  # choices that failed or break a constraint

    @property
    def untimed(self) -> float:
        """The share of choices without a time: unmeasured, failed, or against a constraint."""
        return (self.unmeasured + self.failed) / self.choices


def asked(problem: Problem) -> tuple[str, ...]:
    """The features about which trees, regimes and classes ask, of those that the table holds."""
    kernel = problem.kernel
    whens = [regime.when for regime in kernel.regimes] + [entry.when for entry in kernel.classes]
    named = {name for when in whens if when is not None for name in names(when)} | set(kernel.split_on)
    return tuple(name for name in problem.names if name in named) or problem.names


def features_of(problem: Problem, known: Problem) -> npt.NDArray[np.int64]:
    """[scenarios, asked] the features of a problem about which trees of `known` may ask."""
    return np.stack([problem.column(name) for name in asked(known)], axis=1)


def rule_of(heuristic: Heuristic) -> Rule:
    return Rule(lambda unseen: decisions_of(heuristic, unseen), cells_of(heuristic))


def cells_of(heuristic: Heuristic) -> int:
    """The number of rows and of cells that differ from their rows: what a reader has to read."""
    return sum(1 + len(row.others) for regime in heuristic.regimes for row in regime.rows)


def decisions_of(heuristic: Heuristic, problem: Problem) -> Decisions:
    """What is launched in every scenario, also of a table that the heuristic was not fitted to."""
    rows = (dict(zip(problem.names, row, strict=True)) for row in problem.features.tolist())
    limits = problem.device.limits
    return tuple(choose(heuristic, problem.kernel, limits, values).config for values in rows)


def costs_of(heuristic: Heuristic, problem: Problem) -> npt.NDArray[np.int64]:
    """[scenarios] the cost of what is launched; UNTIMED for a config that the table lacks."""
    columns = Scenarios(problem).columns(heuristic)
    cost = problem.cost[np.arange(len(columns)), columns]
    return np.where(columns == ABSENT, UNTIMED, cost)


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
        return Quality(count, agreement, None, None, None, None, unmeasured, failed)
    scored, worst, where = np.sort(penalise_untimed(cost)), None, None
    percentile95 = math.exp(int(scored[(95 * count + 99) // 100 - 1]) / UNIT)
    if (timed := cost[cost < UNTIMED]).size:
        worst = math.exp(int(timed.max()) / UNIT)
        where = min(name for name, c in zip(choices.scenarios, cost, strict=True) if c == timed.max())
    slowdown = math.exp(int(scored.sum()) / count / UNIT)
    return Quality(count, agreement, slowdown, percentile95, worst, where, unmeasured, failed)
