"""How good each row is by the table to which it was fitted: what its comment and the lock say.

A row keeps its figures as long as its configs and bounds stay, so that measuring the same GPU again changes
no line of a module.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treegen.core.heuristic import Heuristic, RowFigures, paths
from treegen.core.problem import UNIT, Problem
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
        before = [] if old is None else [(old.rows[number], path) for number, path in paths(old.tree)]
        leaves = zip(paths(regime.tree), known.rows(place, regime.tree), strict=True)
        for (number, path), (_, scenarios) in leaves:
            kept = (row.figures for row, bounds in before if (row, bounds) == (rows[number], path))
            figures = next(kept, None) or _figures(problem, cost, scenarios)
            rows[number] = replace(rows[number], figures=figures)
        regimes.append(replace(regime, rows=tuple(rows)))
    return Heuristic(tuple(regimes))


def _figures(problem: Problem, cost: _Ints, scenarios: _Ints) -> RowFigures:
    """The figures of a row. cost: [all scenarios] of what is launched. scenarios: the row's."""
    if not len(scenarios):
        return RowFigures(0)
    ids = tuple(problem.scenarios[row] for row in scenarios)
    found = quality(Choices(cost[scenarios], ids), problem.table.cells)
    if found.slowdown is None or found.percentile95 is None:
        return RowFigures(len(ids), won=round(found.agreement, 4))
    table = problem.table
    rows = np.isin(np.array(table.scenarios)[table.row_scenario], ids)
    own = {name: getattr(table, name)[rows] for name in ("row_scenario", "row_repeat", "times")}
    noise = table_noise(replace(table, **own)) / UNIT
    slowdown, percentile95 = round(found.slowdown, 4), round(found.percentile95, 4)
    return RowFigures(len(ids), slowdown, percentile95, noise=round(noise, 4) or None)
