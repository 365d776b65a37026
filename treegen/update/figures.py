"""How good each row is by the table to which it was fitted: what its comment and the lock say.

A row keeps its figures as long as its configs and bounds stay, so that measuring the same GPU again changes
no line of a module.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treegen.core.heuristic import Heuristic, RegimeRows, RowFigures, paths
from treegen.core.problem import UNIT, Problem
from treegen.core.table import Table
from treegen.crossval.choices import Choices, costs_of, quality
from treegen.fit.costs import table_noise
from treegen.fit.decide import Scenarios

_Ints = npt.NDArray[np.int64]


def with_figures(heuristic: Heuristic, problem: Problem, previous: Heuristic | None) -> Heuristic:
    """The heuristic with figures at each row: those of the previous one where the row is the same, else new.

    Rows are the same if their configs and the bounds that lead to them are.
    """
    known, cost = Scenarios(problem), costs_of(heuristic, problem)
    olds = {regime.name: regime for regime in (previous.regimes if previous is not None else ())}
    regimes = []
    for place, regime in enumerate(heuristic.regimes):
        old, rows = olds.get(regime.name), list(regime.rows)
        for number, row in enumerate(rows):
            figures = None
            if old is not None and _bounds(old, number) == _bounds(regime, number):
                figures = old.rows[number].figures if old.rows[number] == row else None
            inside = [s for reached, s in known.rows(place, regime.tree) if reached == number]
            rows[number] = replace(row, figures=figures or _figures(problem, cost, np.concatenate(inside)))
        regimes.append(replace(regime, rows=tuple(rows)))
    return Heuristic(tuple(regimes))


def _bounds(regime: RegimeRows, number: int) -> list[tuple[str, ...]]:
    """The answers that lead to a row."""
    return [path for reached, path in paths(regime.tree) if reached == number]


def _figures(problem: Problem, cost: _Ints, scenarios: _Ints) -> RowFigures:
    """The figures of a row. cost: [all scenarios] of what is launched. scenarios: the row's."""
    if not len(scenarios):
        return RowFigures(0)
    ids = tuple(problem.scenarios[row] for row in scenarios)
    found = quality(Choices(cost[scenarios], ids), problem.table.cells)
    if found.slowdown is None or found.percentile95 is None:
        return RowFigures(len(ids), won=round(found.agreement, 4))
    noise = table_noise(_part(problem.table, ids)).difference / UNIT
    slowdown, percentile95 = round(found.slowdown, 4), round(found.percentile95, 4)
    return RowFigures(len(ids), slowdown, percentile95, noise=round(noise, 4) or None)


def _part(table: Table, scenarios: tuple[str, ...]) -> Table:
    """The table with the times of some scenarios."""
    rows = np.isin(np.array(table.scenarios)[table.row_scenario], scenarios)
    return replace(
        table,
        row_scenario=table.row_scenario[rows],
        row_repeat=table.row_repeat[rows],
        times=table.times[rows],
    )
