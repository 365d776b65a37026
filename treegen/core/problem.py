"""A table seen through the spec: feature values and costs, ready to fit.

Costs are integers, so that every sum and comparison in fitting is exact and the same table gives the
same tree on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from treegen.core import expr
from treegen.core.spec import Config, Constraint, DeviceSpec, KernelSpec, Objective
from treegen.core.table import Table, median_times

UNIT = 1_000_000
"""One unit of natural-log slowdown (or one missed winner) in cost steps."""

UNMEASURED = 1 << 26
"""Marks a config that was not measured in a scenario; more than any measured loss (e^67 times the best)."""

UNTIMED_PENALTY = round(math.log(Objective.untimed) * UNIT)
"""What fitting charges where a leaf would launch such a config: no time is known, so the risk has a price,
that of a choice twice as slow as the best. Evaluation counts such choices apart."""

FORBIDDEN = 1 << 42
"""Cost of a config that failed or breaks a constraint in a scenario. More than UNMEASURED in 2^16 others,
and sums over 2^20 scenarios fit 63 bits."""

GREATEST_WEIGHT = 1 << 20
"""No scenario counts more than this times another one."""


@dataclass(frozen=True)
class Problem:
    """features: [scenarios, names] int64: all that the table measures or that follows from it; trees may
    ask about `split_on`, most preferred first. cost: [scenarios, configs] int64, in steps of 1 / UNIT.

    For a measured table the cost is log(time / best time of the scenario); for a table of winners it is 0
    for the winner and one UNIT for every other config. left_out: how many scenarios of the table are not
    here, because no config that was measured best there may be launched. scenarios: the ids of the rows.
    weight: [scenarios] int64, from 1 to GREATEST_WEIGHT: how much a scenario counts. table_columns: [configs]
    where the table holds each config.
    """

    kernel: KernelSpec
    device: DeviceSpec
    table: Table
    names: tuple[str, ...]
    split_on: tuple[str, ...]
    features: npt.NDArray[np.int64]
    configs: tuple[Config, ...]
    cost: npt.NDArray[np.int64]
    left_out: int
    scenarios: tuple[str, ...]
    weight: npt.NDArray[np.int64]
    table_columns: tuple[int, ...]

    def rows(self, index: npt.NDArray[np.int64]) -> Problem:
        """The same problem on some of its scenarios."""
        return replace(
            self,
            features=self.features[index],
            cost=self.cost[index],
            scenarios=tuple(self.scenarios[row] for row in index),
            weight=self.weight[index],
        )

    def column(self, name: str) -> npt.NDArray[np.int64]:
        return self.features[:, self.names.index(name)]

    def times(self) -> npt.NDArray[np.float64]:
        """[scenarios, configs] median time in microseconds; NaN was not measured, inf failed."""
        place = {scenario: row for row, scenario in enumerate(self.table.scenarios)}
        rows = [place[scenario] for scenario in self.scenarios]
        return median_times(self.table)[rows][:, self.table_columns]


def charged(cost: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Costs to fit to: UNTIMED_PENALTY where nothing was measured."""
    return np.where(cost == UNMEASURED, UNTIMED_PENALTY, cost)


def holds(constraint: Constraint, values: Mapping[str, int]) -> bool:
    left, right = expr.evaluate(constraint.left, values), expr.evaluate(constraint.right, values)
    match constraint.operator:
        case "<=":
            return left <= right
        case ">=":
            return left >= right
        case "<":
            return left < right
    return left > right
