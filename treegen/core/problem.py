"""A table seen through the spec: feature values and costs, ready to fit.

Costs are integers, so that every sum and comparison in fitting is exact. The same table gives the same
tree on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from treegen.core import expr
from treegen.core.spec import Config, Constraint, DeviceSpec, KernelSpec
from treegen.core.table import Table, median_times

UNIT = 1_000_000
"""Cost steps in one unit of natural-log slowdown, or in one missed winner."""

UNTIMED = 1 << 26
"""Marks an untimed config of a scenario; more than any measured cost (e^67 times the best)."""

UNTIMED_PENALTY = round(math.log(2) * UNIT)
"""The cost with which an untimed choice scores: 2 times slower than the best. No time is estimated for it."""

FORBIDDEN = 1 << 42
"""The cost of a config that failed or breaks a constraint in a scenario.

It is as much as 2^16 times UNTIMED, and its sum over 2^20 scenarios fits 63 bits.
"""

GREATEST_WEIGHT = 1 << 20
"""The greatest weight of a scenario; the least is 1."""


@dataclass(frozen=True, eq=False)
class Problem:
    """The scenarios of a table with the cost of every config in each.

    Costs count steps of 1 / UNIT. In a measured table a cost is log(time / best time of the scenario). In a
    winner table it is 0 for the winner and one UNIT for every other config.
    """

    kernel: KernelSpec
    device: DeviceSpec
    table: Table
    names: tuple[str, ...]  # features that the table measures or that follow from these
    split_on: tuple[str, ...]  # the features of splits, most preferred first
    features: npt.NDArray[np.int64]  # [scenarios, names]
    configs: tuple[Config, ...]
    cost: npt.NDArray[np.int64]  # [scenarios, configs]
    allowed: npt.NDArray[np.bool_]  # [scenarios, configs] whether the constraints hold
    left_out: int  # scenarios that have no best config among those that may be launched, or no row at all
    uncompared: int  # of these, scenarios in which fewer than two configs were tried
    all_forbidden: int  # of the others, scenarios in which constraints forbid every config
    without_time: int  # of the others, scenarios in which no config has a time: those tried failed
    scenarios: tuple[str, ...]  # the ids of the rows
    weight: npt.NDArray[np.int64]  # [scenarios] how much each counts, from 1 to GREATEST_WEIGHT
    table_columns: tuple[int, ...]  # [configs] the column of the table that holds each config

    def __str__(self) -> str:
        return f"{self.kernel.name} on {self.device.key}"

    def rows(self, index: npt.NDArray[np.int64]) -> Problem:
        """The same problem on some of its scenarios."""
        return replace(
            self,
            features=self.features[index],
            cost=self.cost[index],
            allowed=self.allowed[index],
            scenarios=tuple(self.scenarios[row] for row in index),
            weight=self.weight[index],
        )

    def column(self, name: str) -> npt.NDArray[np.int64]:
        """[scenarios] the values of a feature."""
        return self.features[:, self.names.index(name)]

    @property
    def independent(self) -> tuple[str, ...]:
        """The features that do not follow from the others: of derived ones, those that the table measured."""
        held, derived = {*self.names, *self.device.limits}, self.kernel.derived
        return tuple(n for n in self.names if n not in derived or not expr.names(derived[n]) <= held)

    @property
    def table_rows(self) -> list[int]:
        """[scenarios] the place in the table of each scenario."""
        row_of = {scenario: row for row, scenario in enumerate(self.table.scenarios)}
        return [row_of[scenario] for scenario in self.scenarios]

    def times(self) -> npt.NDArray[np.float64]:
        """[scenarios, configs] median times in microseconds; NaN is untimed, inf failed."""
        return median_times(self.table)[self.table_rows][:, self.table_columns]


def common_rows(problem: Problem, other: Problem) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rows in each problem of the scenarios with the same id and features in both, in the same order."""
    raw = {*problem.independent, *other.independent}  # derived ones may follow otherwise
    shared = [name for name in problem.names if name in raw and name in other.names]
    places = {scenario: row for row, scenario in enumerate(other.scenarios if shared else ())}
    pairs = [(row, places[s]) for row, s in enumerate(problem.scenarios) if s in places]
    here, there = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    same = np.ones(len(pairs), dtype=bool)
    for name in shared:
        same &= problem.column(name)[here] == other.column(name)[there]
    return here[same], there[same]


def with_untimed_penalty(cost: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Costs with UNTIMED_PENALTY where a config is untimed."""
    return np.where(cost == UNTIMED, UNTIMED_PENALTY, cost)


def broken_invariant(kernel: KernelSpec, device: DeviceSpec, values: Mapping[str, int]) -> Constraint | None:
    """The first invariant that a shape breaks, of those whose features are known; None if it breaks none."""
    point = {**device.limits, **values}
    for invariant in kernel.invariants:
        if invariant.names <= point.keys() and not holds(invariant, point):
            return invariant
    return None


def holds(constraint: Constraint, values: Mapping[str, int]) -> bool:
    """Return whether the constraint holds for these values of parameters, features and limits."""
    return bool(expr.evaluate(constraint.test, values))
