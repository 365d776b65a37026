"""What a tree's choices cost by a table, what the fit minimises, and which differences are more than noise.

The loss is the log slowdown times the scenario's weight over the mean weight. A tree's loss is the sum of its
leaves' losses, so exact search is possible (separable objectives: STreeD, van der Linden, de Weerdt,
Demirović, NeurIPS 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError
from treegen.core.expr import names
from treegen.core.launches import Ints, as_columns, first_of
from treegen.core.problem import FORBIDDEN, UNIT, Problem, with_untimed_penalty
from treegen.core.table import Cells, Table

_COARSE = 1000  # cost steps: squares of differences in these units sum exactly in float64
_GREATEST = 1 << 19  # of such a difference, so that no single scenario decides
_NORMAL_MEDIAN = 0.6745  # median absolute deviation of a normal variable, in standard deviations

Floats = npt.NDArray[np.float64]


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


class Scenarios:
    """The scenarios of a problem, by regime and by class of models."""

    def __init__(self, problem: Problem) -> None:
        """Raises InputError for a condition on a feature that the table does not hold."""
        self.problem, kernel, count = problem, problem.kernel, len(problem.cost)
        asked = {name for when in kernel.conditions for name in names(when)}
        if missing := sorted(asked - {*problem.names, *problem.device.limits}):
            what = f"does not hold {missing[0]}, about which regimes or classes of the kernel ask"
            raise InputError(problem.table.folder, what)
        self.columns = as_columns({n: problem.column(n) for n in problem.names})
        known: dict[str, Any] = {**self.columns, **problem.device.limits}
        regime = first_of(kernel.regimes, known, count)
        self.regimes = [np.flatnonzero(regime == place) for place in range(len(kernel.regimes))]
        self.group = first_of(kernel.classes, known, count)  # [scenarios] the number of the class
        self.column = {config: place for place, config in enumerate(problem.configs)}


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


@dataclass(frozen=True)
class Evidence:
    """The one test by which rows, cells and bounds pay.

    It is one of paired differences, loss before minus loss after, each of another scenario.

    The sum must exceed `least` for each scenario, what the noise of the repeats makes of the best of many
    configs, and what differences between scenarios explain by a paired one-sided t-test. The test requires z
    standard deviations of a normal variable. Let d be the differences of n scenarios, and r^2 = sum(d)^2 /
    (n sum(d^2)). Then Student's t corresponds to the normal variable

        (8n - 7) / (8n - 5) sqrt((n - 1) log(1 / (1 - r^2)))

    to a good approximation (Wallace, Annals of Mathematical Statistics 30, 1959). For large n it is
    sum(d) / sqrt(sum(d^2)). The test adds one scenario without a difference, as otherwise two that agree by
    chance would prove anything. A difference of a failed config needs no more evidence.
    """

    z: float
    least: int = 0  # what a scenario must save on average, in cost steps
    noise: float = 0.0  # standard deviations of the repeats' noise that the sum must exceed, in cost steps

    def pays(self, difference: Floats) -> npt.NDArray[np.bool_]:
        """Whether differences [scenarios, ...] are evident, summed over the scenarios."""
        units = np.clip(np.trunc(difference / _COARSE), -_GREATEST, _GREATEST)
        parts = (difference, units, units**2, (difference != 0).astype(np.float64))
        saved, total, squares, count = (part.sum(axis=0) for part in parts)
        enough = saved > self.least * count + self.noise * np.sqrt(count)
        if self.z:
            least_r2 = _least_r2(self.z, len(difference))[count.astype(int)]
            enough &= (total > 0) & (total**2 >= (count + 1) * squares * least_r2)
        return np.asarray(enough | (saved >= FAILED // 2))


@cache
def _least_r2(z: float, most: int) -> Floats:
    """[0 to `most` scenarios] the least r^2 that is significant; rounded, so that all machines agree."""
    least = [1.0]
    for count in range(2, most + 2):
        factor = (8 * count - 7) / (8 * count - 5)
        least.append(round(-math.expm1(-((z / factor) ** 2) / (count - 1)), 9))
    return np.array(least)
