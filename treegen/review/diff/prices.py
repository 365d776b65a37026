"""What launching other configs costs by one table, and how sure the table is."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT, UNTIMED, Problem
from treegen.core.spec import Config
from treegen.core.table import Cells, Table
from treegen.crossval.choices import score_decisions
from treegen.review.diff.decisions import Choices, choices_in
from treegen.review.modules import Module
from treegen.review.printing import percent

SURE = 3.0
"""Standard errors beyond which a mean counts as a change: P = 0.0013 on one side."""

_MOST = math.log(2)  # the largest difference of two repeats that counts, or one glitch would hide the rest
_UNKNOWN = Config("", ())  # is in no table
_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


class Verdict(StrEnum):
    SAME = "same"
    FASTER = "faster"
    NOISE = "within noise"
    TOLERATED = "slower within the threshold"
    SLOWER = "slower"
    UNTIMED = "not measured"


@dataclass(frozen=True)
class Price:
    """The old and the new configs of some scenarios, by one table."""

    scenarios: int
    changed: int  # scenarios that launch another config
    timed: int  # scenarios in which both configs have a time
    failing: int  # scenarios in which the new config failed or breaks a constraint
    ratio: float | None  # geometric mean of new over old time where timed; None if no scenario is
    error: float | None  # standard error of the ratio, relative, by repeats; None without repeats
    worst: tuple[str, float] | None  # the scenario that loses most, with its ratio
    best: tuple[str, float] | None  # the scenario that gains most, with its ratio
    won: tuple[int, int] | None  # scenarios whose winner is the old and the new config, in a table of winners
    verdict: Verdict
    table: str = "by the table"
    judges: bool = True  # whether a regression by this table counts; otherwise it only informs
    unknown: int = 0  # scenarios of a table without a feature about which a module asks

    @property
    def regresses(self) -> bool:
        return self.judges and self.verdict is Verdict.SLOWER

    def __str__(self) -> str:
        """`+2.4% +- 0.3% (14 of 84 timed)`."""
        start = f"{self.failing} fail " if self.failing else ""
        if self.won is not None and self.scenarios:
            return f"{start}won {self.won[0]:,} -> {self.won[1]:,}"
        if self.verdict is Verdict.SAME:
            return "same"
        if self.ratio is None or self.verdict is Verdict.UNTIMED:
            return f"{start}not timed"
        error = "" if self.error is None else f" +- {percent(1 + 2 * self.error, sign='')}"
        some = "" if self.timed == self.scenarios else f" ({self.timed:,} of {self.scenarios:,} timed)"
        return f"{start}{percent(self.ratio)}{error}{some}"


@dataclass(frozen=True)
class PricedChoices:
    """The configs that two modules launch in one table's scenarios, and their costs."""

    problem: Problem
    old: Choices
    new: Choices
    old_cost: _Ints  # [scenarios]
    new_cost: _Ints  # [scenarios]
    same: _Bools  # [scenarios] whether both launch one config
    spread: float | None  # of the table
    threshold: float  # accepted slowdown, above 1
    table: str = "by the table"
    judges: bool = True  # whether a regression by this table counts; otherwise it only informs

    @classmethod
    def of(cls, problem: Problem, old: Module, new: Module, threshold: float) -> PricedChoices:
        before, after = choices_in(old, problem), choices_in(new, problem)
        configs = [[_UNKNOWN if one is None else one.config for one in side] for side in (before, after)]
        same = np.array([one == other != _UNKNOWN for one, other in zip(*configs, strict=True)], dtype=bool)
        old_cost, new_cost = (_costs(tuple(side), problem) for side in configs)
        return cls(problem, before, after, old_cost, new_cost, same, spread(problem.table), threshold)

    def rows_of(self, scenarios: Collection[str]) -> _Ints:
        """The rows of scenarios, by their ids."""
        return np.flatnonzero([scenario in scenarios for scenario in self.problem.scenarios])

    def price(self, rows: _Ints | None = None) -> Price:
        """The price of some scenarios; without `rows`, of all."""
        rows = np.arange(len(self.old)) if rows is None else rows
        scenarios = tuple(self.problem.scenarios[row] for row in rows)
        costs = self.old_cost[rows], self.new_cost[rows]
        cells = self.problem.table.cells
        found = price(
            scenarios, *costs, self.same[rows], cells=cells, spread=self.spread, threshold=self.threshold
        )
        unknown = sum(None in (self.old[row], self.new[row]) for row in rows)
        changed = found.changed - unknown
        return replace(found, changed=changed, unknown=unknown, table=self.table, judges=self.judges)


def _costs(configs: tuple[Config, ...], problem: Problem) -> _Ints:
    """[scenarios] costs. The fallback is exempt from constraints, but it may have failed."""
    cost = score_decisions(configs, problem).cost
    fallback = problem.kernel.fallback
    if fallback not in configs or fallback not in problem.configs:
        return cost
    failed = np.isinf(problem.times()[:, problem.configs.index(fallback)])
    exempt = np.array([config == fallback for config in configs]) & ~failed
    return np.where(exempt & (cost > UNTIMED), UNTIMED, cost)


def spread(table: Table) -> float | None:
    """The standard deviation, on the log scale, of the ratio of two configs' median times in one scenario.

    It comes from the root mean square of the differences of consecutive repeats of a cell. Outliers are
    included, as it serves for errors of means. The median of two repeats is their mean; the median of more
    spreads sqrt(pi / 2) times as far as their mean. None if no cell was timed twice in a row.
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


def price(
    scenarios: tuple[str, ...],
    old: _Ints,
    new: _Ints,
    same: _Bools,
    *,
    cells: Cells,
    spread: float | None,
    threshold: float,
) -> Price:
    """Price the new configs of some scenarios.

    scenarios: their ids. old, new: [scenarios] int64 costs of both configs, as in Problem. same: [scenarios]
    whether both configs are one. threshold: the accepted slowdown, above 1.
    """
    failing = int(((new > UNTIMED) & ~same).sum())
    both_timed = (old < UNTIMED) & (new < UNTIMED)
    timed = int(both_timed.sum())
    ratio = error = worst = best = won = None
    verdict = Verdict.UNTIMED
    if cells is Cells.WINNERS:
        won = int((old == 0).sum()), int((new == 0).sum())
        verdict = _verdict_of_winners(old == 0, new == 0)
    elif timed:
        steps = {scenarios[row]: (new - old)[row] / UNIT for row in np.flatnonzero(both_timed & ~same)}
        mean = math.fsum(steps.values()) / timed
        ratio = math.exp(mean)
        error = None if spread is None else spread * math.sqrt(len(steps)) / timed
        if steps:
            slowest, fastest = max(steps, key=steps.__getitem__), min(steps, key=steps.__getitem__)
            worst = (slowest, math.exp(steps[slowest])) if steps[slowest] > 0 else None
            best = (fastest, math.exp(steps[fastest])) if steps[fastest] < 0 else None
            verdict = _verdict_of_times(mean, error or 0.0, threshold)
    if failing:
        verdict = Verdict.SLOWER
    elif same.all():
        verdict = Verdict.SAME
    return Price(
        scenarios=len(old),
        changed=int((~same).sum()),
        timed=timed,
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
