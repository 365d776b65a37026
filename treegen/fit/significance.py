"""Whether costs differ by more than noise explains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT
from treegen.core.table import Cells, Table

_NORMAL = 0.6745  # the median distance of a normal variable from its mean, in standard deviations
_EXPLAINED = 2  # standard deviations of a difference that noise explains
_DIGITS = 10**9

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Noise:
    """In cost steps. cell: the standard deviation of one measured log time; equal: costs of two configs that
    differ by no more than this in a scenario count as equal there."""

    cell: int
    equal: int


@dataclass(frozen=True)
class CostDrop:
    """By how much costs fall in pairs of costs, each of one scenario.

    cost, loss: [pairs] int64, before less after, in steps of 1 / UNIT; loss is what fitting minimises: cost
    with the scenario's weight. unit: [pairs] int64, equal for pairs that are not independent, as they are of
    one scenario or of its copies.
    """

    cost: Ints
    loss: Ints
    unit: Ints


def table_noise(table: Table) -> Noise:
    """The noise of a table, from the cells that two consecutive repeats of a scenario timed.

    The median absolute difference of log times over sqrt(2) * 0.6745 estimates the standard deviation,
    however wild the outliers are (Huber, Robust Statistics, 1981, section 5.1). `equal` is twice that of
    a difference of two medians, over as many repeats as the median timed cell has. Both are 0 where no cell
    was timed twice in a row, and for a table of winners.
    """
    steps, counts = [np.empty(0)], [np.empty(0, dtype=np.int32)]
    if table.cells is Cells.MEASURED:
        for rows in _repeats(table):
            timed = np.isfinite(table.times[rows])
            both = timed[1:] & timed[:-1]
            steps.append(np.abs(np.log(table.times[rows[1:]][both] / table.times[rows[:-1]][both])))
            counts.append(timed.sum(axis=0, dtype=np.int32)[timed.any(axis=0)])
    found, repeats = np.concatenate(steps), np.concatenate(counts)
    if not len(found):
        return Noise(0, 0)
    cell = float(np.median(found)) / (math.sqrt(2) * _NORMAL)
    count = float(np.median(repeats))
    # The median of two is their mean; that of many spreads sqrt(pi / 2) times as far as their mean.
    median = cell / math.sqrt(count) * (1 if count <= 2 else math.sqrt(math.pi / 2))
    return Noise(round(cell * UNIT), round(_EXPLAINED * math.sqrt(2) * median * UNIT))


def _repeats(table: Table) -> list[Ints]:
    """The rows of each scenario, in the order of their repeats."""
    order = np.lexsort([table.row_repeat, table.row_scenario])
    return np.split(order, np.flatnonzero(np.diff(table.row_scenario[order])) + 1)


def copies(features: Ints) -> Ints:
    """[scenarios] one number for all scenarios of the same features, from 0 in order of first appearance."""
    _, first, number = np.unique(features, axis=0, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[number.ravel()])


def pays(fall: CostDrop, noise: Noise, z: float) -> bool:
    """Whether costs fall by more than noise explains: on average by more than the noise of a cell, and
    significantly by a paired one-sided t-test on losses, in which a cost that falls or rises by no more
    than `noise.equal` counts as unchanged.

    z: how many standard deviations of a normal variable the test asks for. With d the falls of n independent
    units, r^2 = sum(d)^2 / (n sum(d^2)) turns Student's t into the normal variable
    (8n - 7) / (8n - 5) sqrt((n - 1) log(1 / (1 - r^2))) to a good approximation (Wallace, Annals of
    Mathematical Statistics 30, 1959); for large n that is sum(d) / sqrt(sum(d^2)). One more unit counts that
    sees no difference: a few that agree by chance would prove anything.
    """
    if not len(fall.cost) or int(fall.cost.sum()) <= noise.cell * len(fall.cost):
        return False
    _, place = np.unique(fall.unit, return_inverse=True)
    falls = np.zeros(int(place.max()) + 1, dtype=np.int64)
    np.add.at(falls, place, np.where(np.abs(fall.cost) <= noise.equal, 0, fall.loss))
    total, count = int(falls.sum()), len(falls) + 1
    squares = Fraction(math.fsum((falls.astype(np.float64) ** 2).tolist()))  # the same in any order
    return total > 0 and total**2 >= count * squares * _least_r2(count, z)


def _least_r2(count: int, z: float) -> Fraction:
    """What r^2 must reach, rounded, so that all machines agree."""
    factor = (8 * count - 7) / (8 * count - 5)
    return Fraction(round(-math.expm1(-((z / factor) ** 2) / (count - 1)) * _DIGITS), _DIGITS)
