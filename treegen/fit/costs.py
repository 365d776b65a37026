"""What a tree's choices cost by a table, what the fit minimises, and which differences are more than noise.

The loss is the log slowdown times the scenario's weight over the mean weight. A tree's loss is the sum of its
leaves' losses, so exact search is possible (separable objectives: STreeD, van der Linden, de Weerdt,
Demirović, NeurIPS 2023).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED_PENALTY, Problem, with_untimed_penalty
from treegen.core.table import Cells, Table

_NORMAL_MEDIAN = 0.6745  # median absolute deviation of a normal variable, in standard deviations
_DIGITS = 10**9

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CostDrop:
    """Drops in cost (before minus after) in pairs of choices, each pair in one scenario."""

    cost: Ints  # [pairs] in steps of 1 / UNIT
    loss: Ints  # [pairs] the same for losses: costs with the scenario's weight, which fitting minimises
    group: Ints  # [pairs] equal for pairs that are not independent: of one scenario or of its copies

    def mean(self) -> tuple[float, float]:
        """The mean drop of a pair in natural logarithms, and its standard error over groups."""
        if not len(self.cost):
            return 0.0, 0.0
        mean = int(self.cost.sum()) / len(self.cost)
        _, place, size = np.unique(self.group, return_inverse=True, return_counts=True)
        sums = np.zeros(len(size), dtype=np.int64)
        np.add.at(sums, place, self.cost)
        squares = math.fsum(((sums - mean * size) ** 2).tolist())
        share = len(size) / (len(size) - 1) if len(size) > 1 else 0.0
        return mean / UNIT, math.sqrt(share * squares) / len(self.cost) / UNIT


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


def is_significant(drop: CostDrop, z: float, least: int = 0) -> bool:
    """Return whether costs drop by over `least` steps on average, and losses by more than chance explains.

    Losses are tested by a paired one-sided t-test over groups. Its error holds the noise of the repeats, as
    every scenario was measured on its own.

    The test requires z standard deviations of a normal variable. Let d be the drops of n independent groups,
    and r^2 = sum(d)^2 / (n sum(d^2)). Then Student's t corresponds to the normal variable

        (8n - 7) / (8n - 5) sqrt((n - 1) log(1 / (1 - r^2)))

    to a good approximation (Wallace, Annals of Mathematical Statistics 30, 1959). For large n it is
    sum(d) / sqrt(sum(d^2)). The test adds one group without a difference, as otherwise two groups that agree
    by chance would prove anything.
    """
    if not len(drop.cost) or int(drop.cost.sum()) <= least * len(drop.cost):
        return False
    _, place = np.unique(drop.group, return_inverse=True)
    drops = np.zeros(int(place.max()) + 1, dtype=np.int64)
    np.add.at(drops, place, drop.loss)
    total, count = int(drops.sum()), len(drops) + 1
    squares = Fraction(math.fsum((drops.astype(np.float64) ** 2).tolist()))  # the same in any order
    return total > 0 and total**2 >= count * squares * _least_r2(count, z)


def _least_r2(count: int, z: float) -> Fraction:
    """The least r^2 that is significant, rounded so that all machines agree."""
    factor = (8 * count - 7) / (8 * count - 5)
    return Fraction(round(-math.expm1(-((z / factor) ** 2) / (count - 1)) * _DIGITS), _DIGITS)


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


CAP = 2 * UNTIMED_PENALTY
"""The greatest cost, that of a choice four times slower than the best, so that no single cell decides."""


def capped_costs(problem: Problem) -> Ints:
    """Costs of which none exceeds CAP, with untimed ones penalised as in fitting."""
    return np.minimum(with_untimed_penalty(problem.cost), CAP)
