"""How good choices are by a table: build, check, eval, report, explain and diff read their figures here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from treegen.core.heuristic import Heuristic
from treegen.core.launches import ABSENT, UNKNOWN, Launches, as_columns, columns_in, launches
from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, UNTIMED_PENALTY, Problem
from treegen.core.spec import Config, KernelSpec
from treegen.core.table import Cells

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Quality:
    """The quality of some choices.

    A slowdown is a choice's time over the best time in its scenario. All slowdowns are None for a winner
    table; `worst` is None where no choice has a time.
    """

    choices: int  # how many were scored
    agreement: float  # share that is the fastest config
    slowdown: float | None  # geometric mean; a choice without a time scores as 2x slower than the best
    percentile95: float | None  # the least slowdown that 95% do not exceed; without a time as in `slowdown`
    worst: float | None  # the greatest slowdown of a choice that has a time
    worst_scenario: str | None  # where that is; of equals the first id in the alphabet
    unmeasured: int  # choices that were not measured
    failed: int  # choices that failed or break a constraint

    @property
    def untimed(self) -> float:
        """The share of choices without a time, which count as 2x slower than the best."""
        return (self.unmeasured + self.failed) / self.choices

    def __str__(self) -> str:
        """As beside a row: `112 scenarios, 1.04x the best`, `40 scenarios, 93% won`."""
        how = f"{self.agreement:.0%} won" if self.slowdown is None else f"{self.slowdown:.2f}x the best"
        return f"{self.choices:,} scenario{'s' * (self.choices != 1)}, {how}"


def penalised(cost: Ints) -> Ints:
    """Costs in which every choice without a time, failed ones included, counts as 2x slower than the best."""
    return np.where(cost >= UNTIMED, UNTIMED_PENALTY, cost)


def quality(cost: Ints, scenarios: tuple[str, ...], cells: Cells) -> Quality:
    """The figures of at least one choice. cost: [choices] as in Problem. scenarios: [choices] ids."""
    count = len(cost)
    failed = int((cost >= FORBIDDEN).sum())
    unmeasured = int((cost >= UNTIMED).sum()) - failed
    agreement = float((cost <= 0).sum()) / count
    if cells is Cells.WINNERS:
        return Quality(count, agreement, None, None, None, None, unmeasured, failed)
    scored, worst, where = np.sort(penalised(cost)), None, None
    percentile95 = math.exp(int(scored[(95 * count + 99) // 100 - 1]) / UNIT)
    if (timed := cost[cost < UNTIMED]).size:
        worst = math.exp(int(timed.max()) / UNIT)
        where = min(name for name, c in zip(scenarios, cost, strict=True) if c == timed.max())
    slowdown = math.exp(int(scored.sum()) / count / UNIT)
    return Quality(count, agreement, slowdown, percentile95, worst, where, unmeasured, failed)


def costs_of(columns: Ints, problem: Problem) -> Ints:
    """[scenarios] the costs of choices. columns: of the problem's configs; ABSENT counts as not measured.

    The kernel's fallback is exempt from constraints, so it costs what its time says, even below the best.
    """
    rows = np.arange(len(columns))
    cost = np.where(columns == ABSENT, UNTIMED, problem.cost[rows, columns])
    fallback = problem.kernel.fallback
    if fallback in problem.configs:
        forbidden = (columns == problem.configs.index(fallback)) & ~problem.allowed[rows, columns]
        exempt = np.flatnonzero(forbidden)
        times, best = problem.times()[exempt], problem.cost[exempt].argmin(axis=1)
        ratio = times[np.arange(len(exempt)), columns[exempt]] / times[np.arange(len(exempt)), best]
        with np.errstate(invalid="ignore"):
            steps = np.rint(np.log(ratio) * UNIT)
        if problem.table.cells is Cells.WINNERS:
            steps = np.where(np.isnan(ratio), UNIT, 0)
        steps = np.where(np.isnan(steps), UNTIMED, np.where(np.isinf(steps), FORBIDDEN, steps))
        cost[exempt] = steps.astype(np.int64)
    return cost


def launched(
    problem: Problem, kernel: KernelSpec, limits: Mapping[str, int], heuristic: Heuristic
) -> Launches:
    """What a module launches in a problem's scenarios.

    kernel: the module's own, perhaps of another version of the spec. What its features are called, what
    their integers stand for and what follows from them is taken from there; a feature that the problem lacks,
    from the table's column.
    """
    features: dict[str, list[int]] = {}
    if kernel is not problem.kernel:
        rows = problem.table.features[problem.table_rows]
        features |= zip(problem.table.feature_names, rows.T.tolist(), strict=True)
    for name in problem.independent:
        words, numbers = problem.kernel.values.get(name, {}), kernel.values.get(name, {})
        by_word = {word: number for number, word in numbers.items()}
        own = {number: by_word[word] for number, word in words.items() if word in by_word}
        features[name] = [own.get(value, value) for value in problem.column(name).tolist()]
    return launches(kernel, limits, heuristic, as_columns(features), len(problem.scenarios))


def times_of(found: Launches, problem: Problem) -> Floats:
    """[scenarios] microseconds of what is launched; NaN is not timed, inf failed."""
    columns = columns_in(problem, found.configs, found.config)
    times = problem.times()[np.arange(len(columns)), columns]
    return np.where(columns == ABSENT, np.nan, times)


@dataclass(frozen=True)
class Score:
    """What a module launches in the scenarios of its table, and how good that is."""

    problem: Problem
    launches: Launches
    columns: Ints  # [scenarios] of the problem's configs; ABSENT for one that the table lacks
    cost: Ints  # [scenarios] log(time / best allowed time), as in Problem

    @classmethod
    def of(cls, problem: Problem, heuristic: Heuristic) -> Score:
        """The score of a module of the problem's kernel and device."""
        found = launched(problem, problem.kernel, problem.device.limits, heuristic)
        columns = columns_in(problem, found.configs, found.config)
        return cls(problem, found, columns, costs_of(columns, problem))

    @cached_property
    def quality(self) -> Quality:
        return self.of_rows(np.arange(len(self.cost)))

    def column_of(self, config: Config) -> int:
        """The column of a config in the problem; ABSENT for one that it lacks."""
        return self.problem.configs.index(config) if config in self.problem.configs else ABSENT

    def of_rows(self, rows: Ints) -> Quality:
        """The figures of some scenarios, at least one."""
        ids = tuple(self.problem.scenarios[row] for row in rows)
        return quality(self.cost[rows], ids, self.problem.table.cells)

    def rows(self) -> dict[tuple[int, ...], Quality]:
        """The figures of each row that scenarios reach, by regime and number."""
        return {place: self.of_rows(rows) for place, rows in self.scenarios_of(2).items()}

    def scenarios_of(self, parts: int) -> dict[tuple[int, ...], Ints]:
        """The scenarios that reach each row, by its regime and number, or each cell, by its class as well."""
        places = np.stack([self.launches.regime, self.launches.row, self.launches.kind][:parts], axis=1)
        found, which = np.unique(places, axis=0, return_inverse=True)
        known = [(number, tuple(p)) for number, p in enumerate(found.tolist()) if UNKNOWN not in p]
        return {place: np.flatnonzero(which.ravel() == number) for number, place in known}


def with_comments(heuristic: Heuristic, score: Score) -> Heuristic:
    """The heuristic with a comment at each row: its score there."""
    found = score.rows()
    regimes = []
    for number, regime in enumerate(heuristic.regimes):
        rows = tuple(
            replace(row, comment=str(found.get((number, place), "0 scenarios")))
            for place, row in enumerate(regime.rows)
        )
        regimes.append(replace(regime, rows=rows))
    return Heuristic(tuple(regimes))


def cells_of(heuristic: Heuristic) -> int:
    """The number of rows and of cells that differ from their rows: what a reader has to read."""
    return sum(1 + len(row.others) for regime in heuristic.regimes for row in regime.rows)
