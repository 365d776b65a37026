"""Which differences of losses are more than chance: the one test by which rows, cells and bounds pay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from treegen.fit.costs import FAILED

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_COARSE = 1000  # cost steps: squares of differences in these units sum exactly in float64
_GREATEST = 1 << 19  # of such a difference, so that no single scenario decides


@dataclass(frozen=True)
class Evidence:
    """A test of paired differences, loss before minus loss after, each of another scenario.

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

    def pays(self, difference: Floats) -> Bools:
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
