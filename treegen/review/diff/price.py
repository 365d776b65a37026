"""The price of launching other configs, by one table, and how sure the table is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT, UNTIMED
from treegen.core.table import Cells, Table

SURE = 3.0
"""Standard errors beyond which a mean counts as a change: P = 0.0013 on one side."""

_MOST = math.log(2)  # the largest difference of two repeats that counts, or one glitch would hide the rest
_Bools = npt.NDArray[np.bool_]
_Ints = npt.NDArray[np.int64]


class Verdict(StrEnum):
    SAME = "same"
    FASTER = "faster"
    NOISE = "within noise"
    TOLERATED = "slower within the threshold"
    SLOWER = "slower"
    UNTIMED = "not measured"


@dataclass(frozen=True)
class Price:
    """The old and the new configs of some scenarios, by one table. The JSON output has these names."""

    scenarios: int
    changed: int  # scenarios that launch another config
    timed: int  # scenarios in which both configs have a time
    lost: int  # scenarios in which only the old config has a time
    gained: int  # scenarios in which only the new config has a time
    failing: int  # scenarios in which the new config failed or breaks a constraint
    ratio: float | None  # geometric mean of new over old time where timed; None if no scenario is
    error: float | None  # standard error of the ratio, relative, by repeats; None without repeats
    worst: tuple[str, float] | None  # the scenario that loses most, with its ratio
    best: tuple[str, float] | None  # the scenario that gains most, with its ratio
    won: tuple[int, int] | None  # scenarios whose winner is the old and the new config, in a table of winners
    verdict: Verdict


@dataclass(frozen=True)
class Tolerance:
    """The differences that a table cannot resolve, and those that a user accepts."""

    cells: Cells
    spread: float | None  # standard deviation of a scenario's log ratio of two equally fast configs
    threshold: float  # accepted slowdown, above 1


def spread(table: Table) -> float | None:
    """The standard deviation, on the log scale, of the ratio of two configs' median times in one scenario.

    It comes from the root mean square of the differences of consecutive repeats of a cell. Outliers are
    included, as it serves for errors of means. The median of two repeats is their mean. The median of more
    repeats spreads sqrt(pi / 2) times as far as their mean. None if no cell was timed twice in a row.
    """
    order = np.lexsort([table.row_repeat, table.row_scenario])
    consecutive = np.diff(table.row_scenario[order]) == 0
    later, earlier = table.times[order[1:][consecutive]], table.times[order[:-1][consecutive]]
    both = np.isfinite(later) & np.isfinite(earlier)
    if not both.any():
        return None
    squares = np.minimum(np.abs(np.log(later[both] / earlier[both])), _MOST) ** 2
    single = math.sqrt(math.fsum(squares.tolist()) / len(squares) / 2)
    counts = np.zeros((len(table.scenarios), table.times.shape[1]), dtype=np.int32)
    np.add.at(counts, table.row_scenario, np.isfinite(table.times))
    count = float(np.median(counts[counts > 0]))
    return single * math.sqrt((2 if count <= 2 else math.pi) / count)


def price(scenarios: tuple[str, ...], old: _Ints, new: _Ints, same: _Bools, tolerance: Tolerance) -> Price:
    """Price the new configs of some scenarios.

    scenarios: their ids. old, new: [scenarios] int64 costs of both configs, as in Problem. same: [scenarios]
    whether both configs are one.
    """
    failing = int(((new > UNTIMED) & ~same).sum())
    old_timed, new_timed = old < UNTIMED, new < UNTIMED
    timed = int((old_timed & new_timed).sum())
    ratio = error = worst = best = won = None
    verdict = Verdict.UNTIMED
    if tolerance.cells is Cells.WINNERS:
        won = int((old == 0).sum()), int((new == 0).sum())
        verdict = _verdict_of_winners(old == 0, new == 0)
    elif timed:
        rows = np.flatnonzero(old_timed & new_timed & ~same)
        steps = (new - old)[rows] / UNIT
        mean = math.fsum(steps.tolist()) / timed
        ratio = math.exp(mean)
        error = None if tolerance.spread is None else tolerance.spread * math.sqrt(len(rows)) / timed
        if len(rows):
            ends = ((scenarios[rows[at]], math.exp(steps[at])) for at in (steps.argmax(), steps.argmin()))
            slowest, fastest = ends
            worst = slowest if slowest[1] > 1 else None
            best = fastest if fastest[1] < 1 else None
            verdict = _verdict_of_times(mean, error or 0.0, tolerance.threshold)
    if failing:
        verdict = Verdict.SLOWER
    elif same.all():
        verdict = Verdict.SAME
    return Price(
        scenarios=len(old),
        changed=int((~same).sum()),
        timed=timed,
        lost=int((old_timed & ~new_timed).sum()),
        gained=int((new_timed & ~old_timed).sum()),
        failing=failing,
        ratio=ratio,
        error=error,
        worst=worst,
        best=best,
        won=won,
        verdict=verdict,
    )


def _verdict_of_times(mean: float, error: float, threshold: float) -> Verdict:
    if abs(mean) <= SURE * error or mean == 0:
        return Verdict.NOISE
    if mean < 0:
        return Verdict.FASTER
    return Verdict.SLOWER if math.exp(mean) > threshold else Verdict.TOLERATED


def _verdict_of_winners(old: _Bools, new: _Bools) -> Verdict:
    """McNemar's test (1947): two equally good choices each win half of the scenarios that only one wins."""
    lost, gained = int((old & ~new).sum()), int((new & ~old).sum())
    if abs(lost - gained) <= SURE * math.sqrt(lost + gained):
        return Verdict.NOISE
    return Verdict.SLOWER if lost > gained else Verdict.FASTER
