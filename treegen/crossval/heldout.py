"""Figures that say how good choices were."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import FORBIDDEN, UNIT, UNMEASURED
from treegen.core.table import Cells
from treegen.crossval.choices import Choices, without_gaps


@dataclass(frozen=True)
class Quality:
    """How good some choices were. Slowdowns are ratios: time over the best time measured there.

    choices: how many were judged. agreement: the share that was the fastest config.
    slowdown: geometric mean over all choices, those without a time charged as twice the best time.
    timed_slowdown: geometric mean over those that have a time. percentile95: the least slowdown that 95% of
    the choices do not exceed, charged alike. worst, worst_scenario: the slowest choice that has a time, and
    where. All of these are None for a table of winners, and the latter three where no choice has a time.
    unmeasured: choices that were not measured. failed: choices that failed or break a constraint.
    """

    choices: int
    agreement: float
    slowdown: float | None
    timed_slowdown: float | None
    percentile95: float | None
    worst: float | None
    worst_scenario: str | None
    unmeasured: int
    failed: int


def quality(judged: Choices, cells: Cells) -> Quality:
    """Sum up the judged choices, of which there must be one at least."""
    cost, count = judged.cost, len(judged.cost)
    failed = int((cost >= FORBIDDEN).sum())
    unmeasured = int((cost >= UNMEASURED).sum()) - failed
    agreement = float((cost == 0).sum()) / count
    if cells is Cells.WINNERS:
        return Quality(count, agreement, None, None, None, None, None, unmeasured, failed)
    charged = np.sort(without_gaps(cost))
    highest = int(charged[(95 * count + 99) // 100 - 1])
    timed = cost[cost < UNMEASURED]
    worst = _worst(judged) if len(timed) else None
    return Quality(
        count,
        agreement,
        geomean(charged),
        geomean(timed) if len(timed) else None,
        math.exp(highest / UNIT),
        math.exp(worst[0] / UNIT) if worst else None,
        worst[1] if worst else None,
        unmeasured,
        failed,
    )


def geomean(cost: npt.NDArray[np.int64]) -> float:
    """The geometric mean of the slowdowns that these costs are the logarithms of."""
    return math.exp(int(cost.sum()) / len(cost) / UNIT)


def gap_closed(slowdown: float | None, single_best: float | None) -> float | None:
    """How much of what the single best config loses is not lost; None where it loses nothing.

    1 is the oracle, 0 as good as the single best, below 0 worse.
    """
    if slowdown is None or single_best is None or single_best <= 1:
        return None
    return 1 - math.log(slowdown) / math.log(single_best)


def _worst(judged: Choices) -> tuple[int, str]:
    """The greatest cost that has a time and the scenario's id; of equals the first in the alphabet."""
    timed = [(int(c), s) for c, s in zip(judged.cost, judged.scenarios, strict=True) if c < UNMEASURED]
    highest = max(cost for cost, _ in timed)
    return highest, min(scenario for cost, scenario in timed if cost == highest)
