"""The objective of the fit: the sum over scenarios of the launched config's loss, in whole steps.

A log slowdown c has the loss c * (1 + worst_case * c / ln 2), times the scenario's weight over the mean
weight. A tree's loss is the sum of its leaves' losses, so exact search is possible (separable objectives:
STreeD, van der Linden, de Weerdt, Demirović, NeurIPS 2023).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, Problem
from treegen.core.table import Cells

FAILED = 1 << 36
"""Loss of a config that failed or breaks a constraint, whatever the scenario's weight: as much as a choice
twice as slow as the best in 2^16 scenarios of mean weight. Every other loss is less. So sums over up to 2^17
scenarios are below 2^53 where nothing failed, which float64 holds exactly, and never above 2^53.
"""

_BLOCK = 128  # scenarios at a time, so that intermediate arrays stay in the cache


def losses(problem: Problem) -> npt.NDArray[np.int64]:
    """[scenarios, configs] int64, from 0 to FAILED, in steps of 1 / UNIT.

    By the default objective, a timed config's loss is its cost. An untimed config has the loss of one that is
    `untimed` times slower than the best. Weights are divided by their mean. If worst_case is 0, the sum of a
    tree's losses, divided by UNIT and by the number of scenarios, is the log of its weighted geometric mean
    slowdown. In a winner table every miss has the same loss, whatever worst_case is. A loss above FAILED - 1
    becomes FAILED - 1.
    """
    objective = problem.kernel.objective
    untimed = round(math.log(objective.untimed) * UNIT)
    is_measured = problem.table.cells is Cells.MEASURED
    bend = objective.worst_case / (math.log(2) * UNIT) if is_measured else 0.0
    share = problem.weight * len(problem.weight) / problem.weight.sum()  # exactly 1 if all weights are equal
    result = np.empty_like(problem.cost)
    for start in range(0, len(result), _BLOCK):
        rows = slice(start, start + _BLOCK)
        result[rows] = _losses(problem.cost[rows], share[rows, None], untimed, bend)
    return result


def _losses(
    cost: npt.NDArray[np.int64], share: npt.NDArray[np.float64], untimed: int, bend: float
) -> npt.NDArray[np.float64]:
    loss = cost.astype(np.float64)
    np.copyto(loss, untimed, where=cost == UNTIMED)
    loss += np.rint(bend * loss**2)
    loss *= share
    np.minimum(np.rint(loss, out=loss), FAILED - 1, out=loss)
    np.copyto(loss, FAILED, where=cost >= FORBIDDEN)
    return loss
