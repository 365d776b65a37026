"""What a tree's choices cost by a table, what the fit minimises, and which differences are more than noise.

The loss is the log slowdown times the scenario's weight over the mean weight. A tree's loss is the sum of its
leaves' losses, so exact search is possible (separable objectives: STreeD, van der Linden, de Weerdt,
Demirović, NeurIPS 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from treegen.core.problem import FORBIDDEN, UNIT, Problem, with_untimed_penalty
from treegen.core.table import Cells, Table

_NORMAL_MEDIAN = 0.6745  # median absolute deviation of a normal variable, in standard deviations

Ints = npt.NDArray[np.int64]


def table_noise(table: Table) -> int:
    """The standard deviation of the difference of two configs' medians in one scenario, in cost steps.

    It follows from cells that two consecutive repeats of a scenario timed. The median absolute difference of
    their log times over sqrt(2) * 0.6745 estimates the standard deviation of one, and outliers hardly move it
    (Huber, Robust Statistics, 1981, section 5.1). Medians are over as many repeats as the median timed cell
    has. The noise is 0 if no cell was timed twice in a row, and for a winner table.
    """
    steps, counts = [np.empty(0)], [np.empty(0, dtype=np.int32)]
    if table.cells is Cells.MEASURED:
        for rows in table.repeats():
            timed = np.isfinite(table.times[rows])
            both = timed[1:] & timed[:-1]
            steps.append(np.abs(np.log(table.times[rows[1:]][both] / table.times[rows[:-1]][both])))
            counts.append(timed.sum(axis=0, dtype=np.int32)[timed.any(axis=0)])
    differences, repeats = np.concatenate(steps), np.concatenate(counts)
    if not len(differences):
        return 0
    cell = float(np.median(differences)) / (math.sqrt(2) * _NORMAL_MEDIAN)
    count = float(np.median(repeats))
    # The median of two is their mean; the median of many spreads sqrt(pi / 2) times as far as their mean.
    median = cell / math.sqrt(count) * (1 if count <= 2 else math.sqrt(math.pi / 2))
    return round(math.sqrt(2) * median * UNIT)


def copies(features: Ints) -> Ints:
    """[scenarios] the same number for scenarios with the same features, from 0 in order of appearance."""
    _, first, number = np.unique(features, axis=0, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[number.ravel()])


def groups_of(problem: Problem, by: Sequence[str] | None = None) -> Ints:
    """[scenarios] the number of the group: equal where the features of `by`, or of the spec, are equal."""
    names = [name for name in (by or problem.kernel.hold_out_by) if name in problem.names]
    if not names:
        return np.zeros(len(problem.cost), dtype=np.int64)
    return copies(np.stack([problem.column(name) for name in names], axis=1))


FAILED = 1 << 36
"""Loss of a config that failed or breaks a constraint, whatever the scenario's weight: as much as a choice
twice as slow as the best in 2^16 scenarios of mean weight. Every other loss is less. So sums over up to 2^17
scenarios are below 2^53 where nothing failed, which float64 holds exactly, and never above 2^53.
"""


def losses(problem: Problem) -> npt.NDArray[np.int64]:
    """[scenarios, configs] int64, from 0 to FAILED, in steps of 1 / UNIT.

    By default, a timed config's loss is its cost, and an untimed one has that of a config 2x slower than the
    best. Weights are divided by their mean, so the sum of a tree's losses, divided by UNIT and by the number
    of scenarios, is the log of its weighted geometric mean slowdown. In a winner table all misses have the
    same loss. A loss above FAILED - 1 becomes FAILED - 1.
    """
    share = problem.weight * len(problem.weight) / problem.weight.sum()  # exactly 1 if all weights are equal
    loss = with_untimed_penalty(problem.cost).astype(np.float64) * share[:, None]
    loss = np.minimum(np.rint(loss), FAILED - 1)
    return np.where(problem.cost >= FORBIDDEN, FAILED, loss).astype(np.int64)
