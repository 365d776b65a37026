"""What other configs cost by one table, and whether that is more than noise and the threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from treegen.core.table import Cells
from treegen.review.printing import counted, percent

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Verdict(StrEnum):
    FASTER = "faster"
    NOISE = "within noise"
    TOLERATED = "slower within the threshold"
    SLOWER = "slower"
    UNTIMED = "not timed"


@dataclass(frozen=True)
class Rules:
    """When a price is a regression."""

    threshold: float  # the accepted slowdown, above 1
    noise: float  # standard deviation of the log ratio of two times of one scenario; 0 if unknown
    cells: Cells


@dataclass(frozen=True)
class Price:
    """One time over another in some scenarios, as a geometric mean where both are known."""

    scenarios: int
    timed: int  # scenarios in which both choices have a time
    untimed: int  # scenarios in which one of the two was not timed; none in a table of winners
    failing: int  # scenarios in which only the new choice fails
    ratio: float | None  # None where nothing is timed
    error: float  # two standard errors of the ratio, relative; 0 without repeats
    worst: tuple[str, float] | None  # the scenario that loses most, with its ratio
    won: tuple[int, int] | None  # of a table of winners: how often the old and the new choice is the winner
    verdict: Verdict

    @property
    def regresses(self) -> bool:
        return self.verdict is Verdict.SLOWER

    @property
    def lost(self) -> float:
        """What it costs in all, in scenarios that take twice the time: to sort by."""
        times = math.log2(self.ratio) * self.timed if self.ratio else 0.0
        return times + self.failing * 1e3 + (0 if self.won is None else self.won[0] - self.won[1])

    def __str__(self) -> str:
        """`+2.4% +- 0.3% in 84 scenarios (14 timed)`."""
        start = f"{self.failing:,} fail, " if self.failing else ""
        of = f"in {counted(self.scenarios, 'scenario')}"
        if self.won is not None:
            return f"{start}won {self.won[0]:,} -> {self.won[1]:,} {of}"
        if self.ratio is None:
            return f"{start}no time of both {of}"
        error = f" +- {percent(1 + self.error, sign='')}" if self.error else ""
        some = "" if self.timed == self.scenarios else f" ({self.timed:,} timed)"
        return f"{start}{percent(self.ratio)}{error} {of}{some}"


def price(ids: npt.NDArray[np.str_], old: Floats, new: Floats, rules: Rules) -> Price:
    """Price what is new over what is old.

    ids: [scenarios] of the table. old, new: [scenarios] microseconds; NaN is not timed, inf failed. In a
    table of winners, what has a time has won.
    """
    failing = int((np.isinf(new) & ~np.isinf(old)).sum())
    both = np.isfinite(old) & np.isfinite(new)
    untimed = int((np.isnan(old) | np.isnan(new)).sum())
    ratio, worst, won, error, verdict = None, None, None, 0.0, Verdict.UNTIMED
    if rules.cells is Cells.WINNERS:
        won = int(np.isfinite(old).sum()), int(np.isfinite(new).sum())
        verdict = _of_winners(np.isfinite(old), np.isfinite(new))
    elif both.any():
        steps = np.log(new[both] / old[both])
        mean = math.fsum(steps.tolist()) / len(steps)
        ratio, error = math.exp(mean), math.expm1(2 * rules.noise / math.sqrt(len(steps)))
        slowest = int(steps.argmax())
        worst = str(ids[both][slowest]), math.exp(float(steps[slowest]))
        if abs(mean) <= math.log1p(error):
            verdict = Verdict.NOISE
        elif mean < 0:
            verdict = Verdict.FASTER
        else:
            verdict = Verdict.SLOWER if ratio > rules.threshold else Verdict.TOLERATED
    if failing:
        verdict = Verdict.SLOWER
    untimed = 0 if won else untimed
    return Price(len(ids), int(both.sum()), untimed, failing, ratio, error, worst, won, verdict)


def _of_winners(old: npt.NDArray[np.bool_], new: npt.NDArray[np.bool_]) -> Verdict:
    """McNemar's test (1947): two equally good choices each win half of the scenarios that only one wins."""
    lost, gained = int((old & ~new).sum()), int((new & ~old).sum())
    if abs(lost - gained) <= 2 * math.sqrt(lost + gained):
        return Verdict.NOISE
    return Verdict.SLOWER if lost > gained else Verdict.FASTER
