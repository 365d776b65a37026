"""What fitting minimises the sum of: the loss of every config in every scenario, in whole steps.

A log slowdown c loses c * (1 + worst_case * c / ln 2), times the scenario's weight over the mean weight. A
tree's loss is the sum of its leaves', so trees can be searched exactly (separable objectives: STreeD, van der
Linden, de Weerdt, Demirović, NeurIPS 2023).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from treegen.core.problem import FORBIDDEN, UNIT, UNMEASURED, Problem
from treegen.core.table import Cells

FAILED = 1 << 36
"""Loss of a config that failed or breaks a constraint, whatever the scenario weighs: as much as a choice
twice as slow as the best in 2^16 scenarios of mean weight. Every other loss is less. So over up to 2^17
scenarios sums are below 2^53 where nothing failed, which float64 holds exactly, and never above 2^53.
"""

_BLOCK = 128  # scenarios at a time: what is computed in between stays in the cache


def losses(problem: Problem) -> npt.NDArray[np.int64]:
    """[scenarios, configs] int64, from 0 to FAILED, in steps of 1 / UNIT.

    By the default objective a timed config loses its cost. One that was not timed loses what a config would
    that is `untimed` times slower than the best. Weights are divided by their mean: if worst_case is 0, the
    sum of a tree's losses, over UNIT and the number of scenarios, is the log of its weighted geometric mean
    slowdown. In a table of winners every miss is alike, whatever worst_case is. Losses above FAILED - 1
    become FAILED - 1.
    """
    objective = problem.kernel.objective
    untimed = round(math.log(objective.untimed) * UNIT)
    graded = problem.table.cells is Cells.MEASURED
    bend = objective.worst_case / (math.log(2) * UNIT) if graded else 0.0
    share = problem.weight * len(problem.weight) / problem.weight.sum()  # exactly 1 where all weigh alike
    result = np.empty_like(problem.cost)
    for start in range(0, len(result), _BLOCK):
        rows = slice(start, start + _BLOCK)
        result[rows] = _losses(problem.cost[rows], share[rows, None], untimed, bend)
    return result


def _losses(
    cost: npt.NDArray[np.int64], share: npt.NDArray[np.float64], untimed: int, bend: float
) -> npt.NDArray[np.float64]:
    loss = cost.astype(np.float64)
    np.copyto(loss, untimed, where=cost == UNMEASURED)
    loss += np.rint(bend * loss**2)
    loss *= share
    np.minimum(np.rint(loss, out=loss), FAILED - 1, out=loss)
    np.copyto(loss, FAILED, where=cost >= FORBIDDEN)
    return loss
