"""Figures of merit of choices."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED
from treegen.core.table import Cells
from treegen.crossval.choices import Choices, penalise_untimed


@dataclass(frozen=True)
class Quality:
    """The quality of some choices.

    A slowdown is a choice's time over the best time in its scenario. All slowdowns are None for a winner
    table; `timed_slowdown` and `worst` are None where no choice has a time.
    """

    choices: int  # how many were scored
    agreement: float  # share that is the fastest config
    slowdown: float | None  # geometric mean; a choice without a time scores as 2x slower than the best
    timed_slowdown: float | None  # geometric mean over the choices that have a time
    percentile95: float | None  # the least slowdown that 95% do not exceed; without a time as in `slowdown`
    worst: float | None  # the greatest slowdown of a choice that has a time
    worst_scenario: str | None  # where that is; of equals the first id in the alphabet
    unmeasured: int  # choices that were not measured
    failed: int  # choices that failed or break a constraint

    @property
    def untimed(self) -> float:
        """The share of choices without a time: unmeasured, failed, or against a constraint."""
        return (self.unmeasured + self.failed) / self.choices


def quality(choices: Choices, cells: Cells) -> Quality:
    """The figures of choices, of which there must be at least one."""
    cost, count = choices.cost, len(choices.cost)
    failed = int((cost >= FORBIDDEN).sum())
    unmeasured = int((cost >= UNTIMED).sum()) - failed
    agreement = float((cost == 0).sum()) / count
    if cells is Cells.WINNERS:
        return Quality(count, agreement, None, None, None, None, None, unmeasured, failed)
    scored = np.sort(penalise_untimed(cost))
    percentile95 = int(scored[(95 * count + 99) // 100 - 1])
    timed = cost[cost < UNTIMED]
    worst = _worst(choices) if len(timed) else None
    return Quality(
        count,
        agreement,
        geomean(scored),
        geomean(timed) if len(timed) else None,
        math.exp(percentile95 / UNIT),
        math.exp(worst[0] / UNIT) if worst else None,
        worst[1] if worst else None,
        unmeasured,
        failed,
    )


def geomean(cost: npt.NDArray[np.int64]) -> float:
    """The geometric mean slowdown of these costs."""
    return math.exp(int(cost.sum()) / len(cost) / UNIT)


def gap_closed(slowdown: float | None, single_best: float | None) -> float | None:
    """The share of the single best config's log slowdown that a method avoids.

    1 is the oracle, 0 is as good as the single best config, below 0 is worse. None if a slowdown is unknown
    or the single best config is optimal.
    """
    if slowdown is None or single_best is None or single_best <= 1:
        return None
    return 1 - math.log(slowdown) / math.log(single_best)


def _worst(choices: Choices) -> tuple[int, str]:
    """The greatest cost of a timed choice and its scenario's id; of equals the first in the alphabet."""
    timed = [(int(c), s) for c, s in zip(choices.cost, choices.scenarios, strict=True) if c < UNTIMED]
    highest = max(cost for cost, _ in timed)
    return highest, min(scenario for cost, scenario in timed if cost == highest)
