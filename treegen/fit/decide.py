"""What a heuristic launches in the scenarios of a problem, as columns of its costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError
from treegen.core.expr import Call, evaluate, names
from treegen.core.heuristic import Heuristic, Split, StepTree
from treegen.core.problem import Problem

Ints = npt.NDArray[np.int64]
ABSENT = -1
"""Stands for a config that the problem lacks."""


class Cell(NamedTuple):
    """The scenarios of a row and a class of models."""

    regime: int
    row: int
    model_class: str
    scenarios: Ints


class Scenarios:
    """The scenarios of a problem, by regime and by class of models."""

    def __init__(self, problem: Problem) -> None:
        """Raises InputError for a condition on a feature that the table does not hold."""
        self.problem = problem
        self.regimes = self._first_of([regime.when for regime in problem.kernel.regimes])
        self.group = np.empty(len(problem.cost), dtype=np.int64)  # [scenarios] the number of the class
        for number, rows in enumerate(self._first_of([c.when for c in problem.kernel.classes])):
            self.group[rows] = number
        self.column = {config: place for place, config in enumerate(problem.configs)}

    def _first_of(self, conditions: Sequence[Call | None]) -> list[Ints]:
        """For each condition, the scenarios in which it is the first that holds. None holds everywhere."""
        problem, left, result = self.problem, np.arange(len(self.problem.cost)), []
        for condition in conditions:
            holds = np.ones(len(left), dtype=np.bool_)
            if condition is not None:
                parts = sorted(names(condition) - set(problem.device.limits))
                for name in parts:
                    if name not in problem.names:
                        what = f"does not hold {name}, about which regimes or classes of the kernel ask"
                        raise InputError(problem.table.folder, what)
                columns = [problem.column(name)[left].tolist() for name in parts]
                points = zip(*columns, strict=True) if parts else [()] * len(left)
                values = (
                    {**problem.device.limits, **dict(zip(parts, point, strict=True))} for point in points
                )
                holds = np.array([evaluate(condition, point) for point in values], dtype=np.bool_)
            result.append(left[holds])
            left = left[~holds]
        return result

    def rows_of(self, tree: StepTree, scenarios: Ints) -> list[tuple[int, Ints]]:
        """Each row of a tree with those of some scenarios that it gets, low sides first.

        Raises ValueError for a feature that the problem lacks.
        """
        if not isinstance(tree, Split):
            return [(tree, scenarios)]
        low = self.problem.column(tree.feature)[scenarios] <= tree.threshold
        return self.rows_of(tree.low, scenarios[low]) + self.rows_of(tree.high, scenarios[~low])

    def cells(self, heuristic: Heuristic) -> list[Cell]:
        """The cells that scenarios reach. Raises as `rows_of`."""
        cells = []
        for number, regime in enumerate(heuristic.regimes):
            for row, inside in self.rows_of(regime.tree, self.regimes[number]):
                for place, entry in enumerate(self.problem.kernel.classes):
                    here = inside[self.group[inside] == place]
                    if len(here):
                        cells.append(Cell(number, row, entry.name, here))
        return cells

    def columns(self, heuristic: Heuristic) -> Ints:
        """[scenarios] the column of the config that is launched, or ABSENT. Raises as `rows_of`.

        The first of a cell's candidates that the constraints allow is launched, or else the fallback.
        """
        problem = self.problem
        fallback = self.column.get(problem.kernel.fallback, ABSENT)
        result = np.full(len(problem.cost), fallback, dtype=np.int64)
        for cell in self.cells(heuristic):
            row, left = heuristic.regimes[cell.regime].rows[cell.row], cell.scenarios
            for config in row.candidates(cell.model_class):
                place = self.column.get(config, ABSENT)
                if place == ABSENT:  # nothing is known of it, so it is taken for allowed
                    result[left] = ABSENT
                    break
                allowed = problem.allowed[left, place]
                result[left[allowed]] = place
                left = left[~allowed]
        return result
