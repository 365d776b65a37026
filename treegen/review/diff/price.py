"""What it costs to launch something else, by a table, and how sure the table is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT, UNMEASURED
from treegen.core.table import Cells, Table

SURE = 3.0
"""Standard errors beyond which a mean is no noise: P = 0.0013 on one side."""

_WILDEST = math.log(2)  # no pair of repeats counts as further apart: one glitch would drown the rest
_Ints = npt.NDArray[np.int64]


class Verdict(StrEnum):
    SAME = "same"
    FASTER = "faster"
    NOISE = "within noise"
    TOLERATED = "slower within the threshold"
    SLOWER = "slower"
    UNTIMED_PENALTY = "not measured"


@dataclass(frozen=True)
class Price:
    """Of some scenarios. changed: how many launch another config. timed: in how many both choices have a
    time; lost, gained: in how many only the old or only the new one has. failing: in how many the new choice
    failed or breaks a constraint. ratio: geometric mean of new over old time where timed; error: its standard
    error from the repeats of the table, relative; both None where nothing is timed. worst, best: the scenario
    that loses and the one that wins most, with their ratios. won: in how many the old and the new choice are
    the winner, all that a table of winners tells.
    """

    scenarios: int
    changed: int
    timed: int
    lost: int
    gained: int
    failing: int
    ratio: float | None
    error: float | None
    worst: tuple[str, float] | None
    best: tuple[str, float] | None
    won: tuple[int, int] | None
    verdict: Verdict


@dataclass(frozen=True)
class Scale:
    """What a table's figures are worth. cells: its kind; spread: the standard deviation of the logarithm of
    a change of one scenario that is no change; threshold: the slowdown, above 1, that is tolerated."""

    cells: Cells
    spread: float
    threshold: float


def spread(table: Table) -> float:
    """The standard deviation, on the log scale, of the ratio of two configs' median times in one scenario.

    From the root mean square of the differences of consecutive repeats of a cell, outliers included: it is
    for means, whose error they make. The median of two repeats is their mean; that of many spreads
    sqrt(pi / 2) times as far as their mean. 0 where nothing was timed twice in a row.
    """
    order = np.lexsort([table.row_repeat, table.row_scenario])
    again = order[1:][np.diff(table.row_scenario[order]) == 0]
    before = order[:-1][np.diff(table.row_scenario[order]) == 0]
    both = np.isfinite(table.times[again]) & np.isfinite(table.times[before])
    if not both.any():
        return 0.0
    steps = np.log(table.times[again][both] / table.times[before][both])
    squares = np.minimum(np.abs(steps), _WILDEST) ** 2
    single = math.sqrt(math.fsum(squares.tolist()) / len(squares) / 2)
    counts = np.zeros((len(table.scenarios), table.times.shape[1]), dtype=np.int32)
    np.add.at(counts, table.row_scenario, np.isfinite(table.times))
    count = float(np.median(counts[counts > 0]))
    return single * math.sqrt((2 if count <= 2 else math.pi) / count)


def price(
    scenarios: tuple[str, ...], old: _Ints, new: _Ints, same: npt.NDArray[np.bool_], scale: Scale
) -> Price:
    """What the new choices cost. old, new: [scenarios] int64 costs of both as in Problem; same: [scenarios]
    whether they are one."""
    failing = int(((new > UNMEASURED) & ~same).sum())
    before, after = old < UNMEASURED, new < UNMEASURED
    timed = before & after
    rows = np.flatnonzero(timed & ~same)
    steps = (new - old)[rows] / UNIT
    counts = {
        "scenarios": len(old),
        "changed": int((~same).sum()),
        "timed": int(timed.sum()),
        "lost": int((before & ~after).sum()),
        "gained": int((after & ~before).sum()),
        "failing": failing,
    }
    if scale.cells is Cells.WINNERS:
        won = (int((old == 0).sum()), int((new == 0).sum()))
        verdict = _of_winners(old == 0, new == 0, same, failing)
        return Price(**counts, ratio=None, error=None, worst=None, best=None, won=won, verdict=verdict)
    if not counts["timed"]:
        verdict = Verdict.SLOWER if failing else Verdict.SAME if same.all() else Verdict.UNTIMED_PENALTY
        return Price(**counts, ratio=None, error=None, worst=None, best=None, won=None, verdict=verdict)
    mean = math.fsum(steps.tolist()) / counts["timed"]
    error = scale.spread * math.sqrt(len(rows)) / counts["timed"]
    ends = (
        [(scenarios[rows[at]], math.exp(steps[at])) for at in (steps.argmax(), steps.argmin())]
        if len(rows)
        else []
    )
    worst = ends[0] if ends and ends[0][1] > 1 else None
    best = ends[1] if ends and ends[1][1] < 1 else None
    verdict = Verdict.SLOWER if failing else _of_times(mean, error, len(rows), same, scale.threshold)
    return Price(
        **counts, ratio=math.exp(mean), error=error, worst=worst, best=best, won=None, verdict=verdict
    )


def _of_times(mean: float, error: float, rows: int, same: npt.NDArray[np.bool_], threshold: float) -> Verdict:
    if same.all():
        return Verdict.SAME
    if not rows:
        return Verdict.UNTIMED_PENALTY
    if abs(mean) <= SURE * error or mean == 0:
        return Verdict.NOISE
    if mean < 0:
        return Verdict.FASTER
    return Verdict.SLOWER if math.exp(mean) > threshold else Verdict.TOLERATED


def _of_winners(
    old: npt.NDArray[np.bool_], new: npt.NDArray[np.bool_], same: npt.NDArray[np.bool_], failing: int
) -> Verdict:
    """McNemar's test: of the scenarios in which just one choice wins, half should be either's."""
    if failing:
        return Verdict.SLOWER
    if same.all():
        return Verdict.SAME
    lost, gained = int((old & ~new).sum()), int((new & ~old).sum())
    if abs(lost - gained) <= SURE * math.sqrt(lost + gained):
        return Verdict.NOISE
    return Verdict.SLOWER if lost > gained else Verdict.FASTER
