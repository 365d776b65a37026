"""What other configs cost by one table, whether that is more than noise, and what became of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from treegen.core.errors import one_line
from treegen.core.launches import Launches
from treegen.core.problem import UNIT, Problem, common_rows
from treegen.core.table import Cells
from treegen.crossval.score import Floats, launched, times_of
from treegen.fit.costs import table_noise
from treegen.review.printing import counted, percent
from treegen.write.modules import Module

MOVED = 1.05
"""How far the times of a config must move, on average, to contradict an earlier table of the same software.

Between two runs of one GPU, 99% of the cells move by less (docs/stability.md)."""
_SURE = 4.5  # standard errors by which they must move: the most of many configs is looked at
_FEWEST = 5  # common cells of a config that is judged
_CAUSES = {"driver": "the driver", "torch": "PyTorch", "triton": "Triton"}
_CAUSES |= {"source_hash": "the kernel's source", "timing": "the timing"}


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
    regresses: bool  # whether it is slower by more than the threshold and noise, or fails

    @property
    def lost(self) -> float:
        """What it costs in all, in scenarios that take twice the time: to sort by."""
        times = math.log2(self.ratio) * self.timed if self.ratio else 0.0
        return times + self.failing * 1e3 + (0 if self.won is None else self.won[0] - self.won[1])

    def __str__(self) -> str:
        """`+2.4% +- 0.3% in 84 scenarios (14 timed)`."""
        of = f"in {counted(self.scenarios, 'scenario')}"
        fail = f", {self.failing:,} fail" if self.failing else ""
        if self.won is not None:
            return f"won {self.won[0]:,} -> {self.won[1]:,} {of}{fail}"
        if self.ratio is None:
            return f"no time of both {of}{fail}"
        error = f" +- {percent(1 + self.error, sign='')}" if self.error else ""
        some = "" if self.timed == self.scenarios else f" ({self.timed:,} timed)"
        return f"{percent(self.ratio)}{error} {of}{some}{fail}"


def price(
    ids: npt.NDArray[np.str_], old: Floats, new: Floats, threshold: float, noise: float, cells: Cells
) -> Price:
    """Price what is new over what is old.

    ids: [scenarios] of the table. old, new: [scenarios] microseconds; NaN is not timed, inf failed. In a
    table of winners, what has a time has won. threshold: the accepted slowdown, above 1. noise: the standard
    deviation of the log ratio of two times of one scenario; 0 if unknown.
    """
    failing = int((np.isinf(new) & ~np.isinf(old)).sum())
    both = np.isfinite(old) & np.isfinite(new)
    untimed = int((np.isnan(old) | np.isnan(new)).sum())
    ratio, worst, won, error, lost, unsure = None, None, None, 0.0, 0.0, 0.0
    if cells is Cells.WINNERS:
        # McNemar's test (1947): two equally good choices each win half of the scenarios that only one wins.
        wins = np.isfinite(old), np.isfinite(new)
        won, untimed = (int(wins[0].sum()), int(wins[1].sum())), 0
        lost, unsure = won[0] - won[1], 2 * math.sqrt(int((wins[0] ^ wins[1]).sum()))
    elif both.any():
        steps = np.log(new[both] / old[both])
        lost, unsure = math.fsum(steps.tolist()) / len(steps), 2 * noise / math.sqrt(len(steps))
        ratio, error = math.exp(lost), math.expm1(unsure)
        slowest = int(steps.argmax())
        worst = str(ids[both][slowest]), math.exp(float(steps[slowest]))
    slower = failing > 0 or (lost > unsure and (ratio is None or ratio > threshold))
    return Price(len(ids), int(both.sum()), untimed, failing, ratio, error, worst, won, slower)


@dataclass(frozen=True)
class World:
    """The difference of two tables of a device."""

    scenarios: tuple[int, int]  # before and now
    common: int  # scenarios of the same id and features
    launched: Price | None  # the new module by the new table over the old one by the old table
    alone: Price | None  # the old module by the new table over itself by the old table
    cause: tuple[str, ...]  # what differs of the software and the GPU, such as `driver: 550 -> 580`
    moved: Mapping[str, tuple[int, float]]  # launched configs that moved: by name, cells and ratio
    contradicts: bool  # whether configs moved although spec, software and GPU are the same
    lost: int  # cells that had a time and are not measured now, of common scenarios and configs
    failing: int  # cells that failed only in the new table


def world_of(
    modules: tuple[Module, Module], problems: tuple[Problem, Problem], threshold: float, same_spec: bool
) -> World:
    """Compare the old and the new table, which are not the same.

    problems: each table as its own spec reads it. same_spec: whether both specs say the same.
    """
    tables = [problem.table for problem in problems]
    rows = common_rows(*problems)
    own, name = modules[1].kernel.own, modules[1].kernel.constant_name
    columns = [[own(config) for config in problem.configs] for problem in problems]
    shared = [config for config in columns[0] if config in columns[1]]
    at = [[mine.index(config) for config in shared] for mine in columns]
    before, now = (problems[side].times()[rows[side]][:, at[side]] for side in (0, 1))
    measured = Cells.WINNERS not in (tables[0].cells, tables[1].cells)
    known = [noise for noise in map(table_noise, tables) if noise] or [0]  # of one repeat there is none
    noise = math.hypot(*known) / math.sqrt(len(known)) / UNIT
    used = {own(c) for module in modules for c in (*module.heuristic.configs, module.kernel.fallback)}
    moved = {}
    for place, config in enumerate(shared):
        both = np.isfinite(before[:, place]) & np.isfinite(now[:, place])
        if config in used and measured and (cells := int(both.sum())) >= _FEWEST:
            mean = float(np.log(now[both, place] / before[both, place]).mean())
            if abs(mean) > max(math.log(MOVED), _SURE * noise / math.sqrt(cells)):
                moved[name(config)] = cells, math.exp(mean)
    run = {words: [table.provenance.get(key) for table in tables] for key, words in _CAUSES.items()}
    run["the device"] = [table.device_name for table in tables]
    cause = tuple(_change(words, *values) for words, values in run.items() if values[0] != values[1])
    ids = np.array(problems[1].scenarios)[rows[1]]
    then = times_of(launches_of(modules[0], problems[0]), problems[0])[rows[0]]
    by_new = (times_of(launches_of(module, problems[1]), problems[1])[rows[1]] for module in modules)
    of = threshold, noise, Cells.MEASURED
    alone, total = (price(ids, then, times, *of) if measured else None for times in by_new)
    return World(
        scenarios=(len(tables[0].scenarios), len(tables[1].scenarios)),
        common=len(rows[0]),
        launched=total,
        alone=alone,
        cause=cause,
        moved=dict(sorted(moved.items(), key=lambda one: -abs(math.log(one[1][1])) * one[1][0])),
        contradicts=bool(moved) and not cause and same_spec,
        lost=int((np.isfinite(before) & np.isnan(now)).sum()) * measured,
        failing=int((np.isinf(now) & ~np.isinf(before)).sum()),
    )


@lru_cache(maxsize=8)  # a table's prices and its comparison with another one both ask
def launches_of(module: Module, problem: Problem) -> Launches:
    return launched(problem, module.kernel, module.device.limits, module.heuristic)


def _change(what: str, *values: object) -> str:
    """What differs in run.yaml, with both values if their beginnings differ."""
    one, other = ("nothing" if value is None else one_line(str(value))[:100] for value in values)
    return what if one == other else f"{what}: {one} -> {other}"
