"""From a problem to a heuristic: the stages of the fit, in the order in which they run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np

from treegen.core.heuristic import Heuristic, RegimeRows
from treegen.core.launches import ABSENT, Ints, columns_in, launches, leaves
from treegen.core.problem import UNIT, UNTIMED_PENALTY, Problem
from treegen.fit.costs import FAILED, Scenarios, losses, table_noise
from treegen.fit.regime import WORTH, Z_CHANGE, RegimeSearch, change_evidence
from treegen.fit.runners_up import BROKEN, RunnersUp

_SHORTLIST = 40  # configs that the search of a regime tries


class Origin(StrEnum):
    """Where the rows of a module come from."""

    KEPT = "kept"  # from the module before
    EDITED = "edited"  # from there, with changes that the table gives evidence for
    FRESH = "fresh"  # fitted to the table alone


def fit(problem: Problem) -> Heuristic:
    """The heuristic of least loss that was found within the kernel's budget; equal on every machine.

    A regime without scenarios, as a part of a table may have, gets what is best in all scenarios.
    """
    fits = _Fits(problem)
    return fits.heuristic(fits.few_configs(None), None)


def refit(problem: Problem, previous: Heuristic | None) -> tuple[Heuristic, Origin]:
    """The previous heuristic with what the table gives evidence to change, or a fresh one.

    It is launched if it loses at most 0.5% of the time beside the fresh one, or what noise explains.
    """
    fits = _Fits(problem)
    best = fits.few_configs(None)
    fresh = fits.heuristic(best, None)
    if previous is not None:
        for columns in (fits.few_configs(previous), best):
            changed = fits.heuristic(columns, previous)
            if fits.is_as_good(changed, fresh):
                return changed, Origin.KEPT if changed == previous else Origin.EDITED
    return fresh, Origin.FRESH


class _Fits:
    """The fits of a problem: fresh, or from an earlier heuristic."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.grouped = problem, Scenarios(problem)
        measured = losses(problem)
        self.loss = np.where(problem.allowed, measured, BROKEN)
        self._measured, self._noise = measured, table_noise(problem.table)
        self._change = change_evidence(self._noise)
        self._searches = []
        for place, scenarios in enumerate(self.grouped.regimes):
            loss = self.loss[scenarios] if len(scenarios) else self.loss
            columns = _shortlist(loss, np.ones(len(loss), dtype=np.int64), _SHORTLIST)
            self._searches.append(RegimeSearch(self.grouped, place, self.loss, columns, self._noise, None))

    def few_configs(self, previous: Heuristic | None) -> Ints:
        """The columns with which cells lose least, up to the budget: those of an earlier heuristic first."""
        column, most = self.grouped.column, self.problem.kernel.budget.max_configs
        rows = [row for regime in (previous.regimes if previous else ()) for row in regime.rows]
        used = sorted({column[c] for row in rows for c in (row.config, *row.others.values()) if c in column})
        start = used if len(used) <= most else []
        searched = [search.columns for search in self._searches]
        every = np.unique(np.concatenate([*searched, np.array(start, np.int64)]))
        if len(every) <= most:
            return every
        counts, sums = [], []
        for search in self._searches:
            for count, cell in search.class_sums():
                wide = np.full(len(every), FAILED, dtype=np.int64)
                wide[np.searchsorted(every, search.columns)] = cell
                counts.append(count)
                sums.append(wide)
        places = np.searchsorted(every, start).tolist()
        return np.asarray(every[_shortlist(np.array(sums), np.array(counts), most, places)])

    def heuristic(self, columns: Ints, previous: Heuristic | None) -> Heuristic:
        """The heuristic over some columns of the problem's configs."""
        problem, grouped = self.problem, self.grouped
        before = {r.name: r for r in previous.regimes} if previous is not None else {}
        searches = [
            RegimeSearch(grouped, place, self.loss, columns, self._noise, before.get(regime.name))
            for place, regime in enumerate(problem.kernel.regimes)
        ]
        rows_of_regimes = [search.rows() for search in searches]
        rows = [row for rows in rows_of_regimes for row in rows]
        used = {config for row in rows for config in (row.config, *row.others.values())}
        every = np.unique(np.concatenate([search.columns for search in self._searches]))
        listed = {problem.configs[column] for column in every}
        runners_up = RunnersUp(grouped, used, sorted(used | listed), self._change)
        regimes = []
        for search, own in zip(searches, rows_of_regimes, strict=True):
            tree = search.step_tree()
            reached = leaves(tree, search.scenarios, grouped.columns)
            complete = [replace(own[n], then=runners_up.of(own[n], here, self.loss)) for n, here in reached]
            regimes.append(RegimeRows(search.regime.name, tree, tuple(complete)))
        return Heuristic(tuple(regimes))

    def is_as_good(self, one: Heuristic, other: Heuristic) -> bool:
        """Whether a heuristic loses at most 0.5% beside another, or what noise explains where they differ."""
        ours, theirs = self.launched(one), self.launched(other)
        lost = int((self._lost(ours) - self._lost(theirs)).sum())
        noise = Z_CHANGE * self._noise * math.sqrt(int((ours != theirs).sum()))
        return lost <= max(WORTH * len(ours), noise)

    def _lost(self, columns: Ints) -> Ints:
        """[scenarios] the losses of what is launched."""
        measured = self._measured[np.arange(len(columns)), columns]
        return np.where(columns == ABSENT, UNTIMED_PENALTY, measured)

    def launched(self, heuristic: Heuristic) -> Ints:
        """[scenarios] the column of the config that is launched, or ABSENT."""
        problem, columns = self.problem, self.grouped.columns
        found = launches(problem.kernel, problem.device.limits, heuristic, columns, len(self.loss))
        return columns_in(problem, found.configs, found.config)


def _shortlist(loss: Ints, count: Ints, most: int, start: Sequence[int] = ()) -> Ints:
    """The columns that lower the sum of least losses most, added to those at the start; ascending.

    loss: [cells, columns] summed over this many scenarios, count: [cells].
    """
    now = 3 * UNIT * count  # before the first column: a scenario is as bad as a choice 20 times slower
    chosen = list(start)
    for column in chosen:
        now = np.minimum(now, loss[:, column])
    while len(chosen) < min(most, loss.shape[1]):
        left = np.minimum(now[:, None], loss).sum(axis=0)
        left[chosen] = np.iinfo(np.int64).max
        chosen.append(int(left.argmin()))
        now = np.minimum(now, loss[:, chosen[-1]])
    return np.array(sorted(chosen))
