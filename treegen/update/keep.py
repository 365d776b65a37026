"""Decide what a build takes: the previous heuristic, changed where the table has evidence, or a fresh one.

Noise changes nothing: a cell or a bound changes only where that saves more than noise explains.
docs/stability.md explains the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split, StepTree, depth, split_features
from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, Problem
from treegen.core.spec import Config
from treegen.core.table import Cells
from treegen.crossval.folds import Evaluation
from treegen.fit.costs import CostDrop, capped_costs, copies, is_significant, losses, table_noise
from treegen.fit.decide import ABSENT, Scenarios
from treegen.fit.fit import Spares
from treegen.fit.splits import candidate_splits

Ints = npt.NDArray[np.int64]

WORTH = round(math.log(1.005) * UNIT)
"""What a change must save on average, in cost steps: 0.5% of the time. Less is not worth another module."""

WORTH_FRESH = round(math.log(1.01) * UNIT)
"""What a fresh heuristic must save: 1% of the time. Its module is new in every line, for a person to read."""

Z_EDIT = 3.0
"""Standard errors that a change of a cell or a bound must save: P = 0.0013."""

Z_CONFIGS = 4.5
"""Standard errors, by the noise of the repeats alone, that such a change must save: P = 3e-6. A cell gets the
best of all configs, so that thousands of cells with configs are tried."""

Z_FRESH = 2.0
"""Standard errors by which a fresh heuristic must be better where it was fitted and held out, P = 0.023."""

Z_SURE = 3.0
"""Standard errors by which a fresh heuristic must be better where it was fitted alone, P = 0.0013."""


class Origin(StrEnum):
    KEPT = "kept"
    EDITED = "edited"
    FRESH = "fresh"


@dataclass(frozen=True)
class Chosen:
    """The heuristic that a build takes."""

    heuristic: Heuristic
    origin: Origin
    fresh: Heuristic  # what was fitted to the whole table
    cells: int = 0  # cells that got another config
    bounds: int = 0  # bounds that moved
    why_fresh: str | None = None  # why the previous heuristic, if there was one, was not kept
    # The share of the time that the fresh one saves by this table, and its standard error over scenarios.
    forgone: tuple[float, float] | None = None

    def __str__(self) -> str:
        """As the lock states it: kept, fresh, or such as `edited: 2 cells, 1 bound`."""
        counts = ((self.cells, "cell"), (self.bounds, "bound"))
        words = [f"{count} {one}{'s' * (count > 1)}" for count, one in counts if count]
        return f"{self.origin}: {', '.join(words)}" if words else str(self.origin)


@dataclass(frozen=True)
class DeviceHeuristic:
    """What one device's module is printed from, and its inputs."""

    problem: Problem
    chosen: Chosen
    evaluation: Evaluation | None  # held-out figures of fresh fits; None for a small table

    @property
    def heuristic(self) -> Heuristic:
        return self.chosen.heuristic


@dataclass(frozen=True)
class Build:
    """Everything that a build writes."""

    heuristics: tuple[DeviceHeuristic, ...]
    files: Mapping[str, str]  # texts by their path below the output folder


class _Costs:
    """What heuristics cost in the scenarios of a problem, ready for significance tests."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.known = problem, Scenarios(problem)
        self.cost = capped_costs(problem)  # [scenarios, configs]
        self.loss = losses(replace(problem, cost=self.cost))
        self.group = copies(problem.features)
        self.noise = table_noise(problem.table)
        self.every = np.arange(len(problem.cost))

    def fails(self, columns: Ints) -> npt.NDArray[np.bool_]:
        """[scenarios] whether the launched config failed there, was never timed or is not in the table."""
        never = np.asarray((self.problem.cost >= UNTIMED).all(axis=0))
        failed = self.problem.cost[self.every, columns] >= FORBIDDEN
        return np.asarray((columns == ABSENT) | failed | never[columns])

    def drop(self, before: Ints, after: Ints) -> CostDrop:
        """The drops of cost where the columns differ and the choice before was timed.

        Untimed choices after are penalised as in fitting.
        """
        rows = np.flatnonzero((before != after) & (before != ABSENT) & (after != ABSENT))
        old = before[rows]
        rows = rows[self.problem.cost[rows, old] != UNTIMED]
        old, new = before[rows], after[rows]
        return CostDrop(
            self.cost[rows, old] - self.cost[rows, new],
            self.loss[rows, old] - self.loss[rows, new],
            self.group[rows],
        )

    def drop_to(self, before: Ints, after: Ints, *, penalise_untimed: bool) -> CostDrop:
        """The drops to costs [scenarios], as in `Problem.cost`, over all scenarios."""
        old = self.problem.cost[self.every, before]
        timed = (after != UNTIMED) & (old != UNTIMED)
        rows = np.flatnonzero((timed | penalise_untimed) & (before != ABSENT))
        cost = capped_costs(replace(self.problem, cost=after[:, None]))
        loss = losses(replace(self.problem, cost=cost))
        return CostDrop(
            self.cost[rows, before[rows]] - cost[rows, 0],
            self.loss[rows, before[rows]] - loss[rows, 0],
            self.group[rows],
        )

    def least(self, drop: CostDrop) -> int:
        """The mean that a drop must exceed: what is worth a change, and what noise makes of the best."""
        error = self.noise / math.sqrt(max(1, len(np.unique(drop.group))))
        return max(WORTH, round(Z_CONFIGS * error))


def keep(
    problem: Problem,
    previous: Heuristic | str | None,
    fresh: Heuristic,
    held_out: Callable[[], Ints],
    *,
    other_scenarios: bool = False,
    changed: str | None = None,
) -> Chosen:
    """The previous heuristic with its significant changes, unless fresh ones are significantly better.

    Args:
        problem: the table
        previous: the previous heuristic, or why there is none to keep; None without a word
        fresh: what was fitted to the table
        held_out: returns [scenarios] int64 costs of fits that have not seen the scenario; called if needed
        other_scenarios: whether the previous table had other scenarios: then a fresh heuristic also wins if
            it is better with untimed choices penalised on both sides
        changed: what forbids to keep the previous one, in words; None for nothing
    """
    if previous is None or isinstance(previous, str):
        return Chosen(fresh, Origin.FRESH, fresh, why_fresh=previous)
    if previous == fresh:
        return Chosen(fresh, Origin.KEPT, fresh)
    if why := changed or _not_allowed(problem, previous):
        return Chosen(fresh, Origin.FRESH, fresh, why_fresh=why)
    costs = _Costs(problem)
    edited = _Editor(costs, previous)
    if costs.fails(edited.columns).any():
        why = (
            "it launches a config that failed, or that the table does not time, and no single config would do"
        )
        return Chosen(fresh, Origin.FRESH, fresh, why_fresh=why)
    by_table = problem.cost[costs.every, costs.known.columns(fresh)]
    for penalise_untimed in (False, True) if other_scenarios else (False,):
        drop = costs.drop_to(edited.columns, by_table, penalise_untimed=penalise_untimed)
        if not is_significant(drop, Z_FRESH, WORTH_FRESH):
            continue
        where = "by this table"
        if penalise_untimed or not is_significant(drop, Z_SURE, WORTH_FRESH):
            drop = costs.drop_to(edited.columns, held_out(), penalise_untimed=penalise_untimed)
            if not is_significant(drop, Z_FRESH):
                continue
            where = "in scenarios that it has not seen"
        why = _better(problem, drop, where, penalise_untimed)
        return Chosen(fresh, Origin.FRESH, fresh, why_fresh=why)
    origin = Origin.EDITED if edited.cells or edited.bounds else Origin.KEPT
    forgone = costs.drop_to(edited.columns, by_table, penalise_untimed=False).mean()
    return Chosen(edited.heuristic, origin, fresh, edited.cells, edited.bounds, forgone=forgone)


class _Editor:
    """Changes cells and bounds of a heuristic: those that must change, then the best one until none pays."""

    def __init__(self, costs: _Costs, heuristic: Heuristic) -> None:
        self._costs, self.heuristic = costs, heuristic
        self.columns = costs.known.columns(heuristic)
        self.cells = self.bounds = 0
        self._repair()
        while self._edit():
            pass

    def _repair(self) -> None:
        """Replace configs that failed, were never timed or are not in the table, whatever that costs."""
        failing = self._costs.fails(self.columns)
        for cell in self._costs.known.cells(self.heuristic):
            if failing[cell.scenarios].any():
                best = self._best(cell.scenarios)
                self._take(self._with_cell(cell.regime, cell.row, cell.model_class, best))
                self.cells += 1
        for number, regime in enumerate(self.heuristic.regimes):
            for place, scenarios in self._costs.known.rows(number, regime.tree):
                if len(scenarios):
                    self._replace_vanished(number, place, scenarios)

    def _replace_vanished(self, number: int, place: int, scenarios: Ints) -> None:
        """Replace a row's configs that are not in the table where no scenario shows it, too."""
        known = self._costs.problem.configs
        row = self.heuristic.regimes[number].rows[place]
        main = row.config if row.config in known else self._best(scenarios)
        others = {name: config for name, config in row.others.items() if config in known and config != main}
        if (main, others) != (row.config, row.others):
            self._take(self._with_row(number, place, lambda old: replace(old, config=main, others=others)))
            self.cells += 1

    def _edit(self) -> bool:
        taken = self._most_saving(self._other_cells())  # first: a cell's line tells why it changed
        is_bound = taken is None
        taken = taken or self._most_saving(self._other_bounds())
        if taken is None or self._costs.fails(self._costs.known.columns(taken)).any():
            return False
        self._take(taken)
        self.cells, self.bounds = self.cells + (not is_bound), self.bounds + is_bound
        return True

    def _most_saving(self, others: Iterator[Heuristic]) -> Heuristic | None:
        """The one that saves most of those that save significantly."""
        best, found = 0, None
        for other in others:
            drop = self._costs.drop(self.columns, self._costs.known.columns(other))
            saved = int(drop.loss.sum())
            if saved > best and is_significant(drop, Z_EDIT, self._costs.least(drop)):
                best, found = saved, other
        return found

    def _other_cells(self) -> Iterator[Heuristic]:
        """Every heuristic that differs in one cell, or in the main config of a row."""
        known, classes = self._costs.known, self._costs.problem.kernel.classes
        for number, regime in enumerate(self.heuristic.regimes):
            for row, scenarios in known.rows(number, regime.tree):
                if not len(scenarios):
                    continue
                others = regime.rows[row].others
                alone = [k for k, entry in enumerate(classes) if entry.name not in others]
                shared = scenarios[np.isin(known.group[scenarios], alone)]
                if len(shared):
                    yield self._with_main(number, row, self._best(shared))
                for k, entry in enumerate(classes):
                    own = scenarios[known.group[scenarios] == k]
                    if len(own):
                        yield self._with_cell(number, row, entry.name, self._best(own))
                        yield self._with_cell(number, row, entry.name, regime.rows[row].config)

    def _other_bounds(self) -> Iterator[Heuristic]:
        """Every heuristic that differs in one bound."""
        for number, regime in enumerate(self.heuristic.regimes):
            for tree in self._moved(regime.tree, self._costs.known.regimes[number]):
                yield self._with_regime(number, replace(regime, tree=tree))

    def _moved(self, tree: StepTree, scenarios: Ints) -> Iterator[StepTree]:
        """The tree with one bound moved to each other candidate on its feature."""
        if not isinstance(tree, Split) or not len(scenarios):
            return
        values = self._costs.problem.column(tree.feature)[scenarios]
        for split in candidate_splits(values[:, None]):
            yield replace(tree, threshold=split.threshold)
        low = values <= tree.threshold
        for side in self._moved(tree.low, scenarios[low]):
            yield replace(tree, low=side)
        for side in self._moved(tree.high, scenarios[~low]):
            yield replace(tree, high=side)

    def _best(self, scenarios: Ints) -> Config:
        """The config that fails in the fewest scenarios; of these the one of least loss, then the first."""
        problem = self._costs.problem
        failing = (problem.allowed[scenarios] & (problem.cost[scenarios] >= FORBIDDEN)).sum(axis=0)
        order = np.lexsort([self._costs.loss[scenarios].sum(axis=0), failing])
        return problem.configs[int(order[0])]

    def _with_main(self, regime: int, row: int, config: Config) -> Heuristic:
        return self._with_row(regime, row, lambda old: replace(old, config=config))

    def _with_cell(self, regime: int, row: int, model_class: str, config: Config) -> Heuristic:
        def changed(old: Row) -> Row:
            others = {name: c for name, c in old.others.items() if name != model_class}
            return replace(old, others=others if config == old.config else {**others, model_class: config})

        return self._with_row(regime, row, changed)

    def _with_row(self, number: int, row: int, change: Callable[[Row], Row]) -> Heuristic:
        regime = self.heuristic.regimes[number]
        rows = tuple(change(old) if place == row else old for place, old in enumerate(regime.rows))
        return self._with_regime(number, replace(regime, rows=rows))

    def _with_regime(self, number: int, regime: RegimeRows) -> Heuristic:
        regimes = self.heuristic.regimes
        return Heuristic((*regimes[:number], regime, *regimes[number + 1 :]))

    def _take(self, heuristic: Heuristic) -> None:
        """Take a changed heuristic, with runners-up for the rows whose configs changed."""
        problem, known = self._costs.problem, self._costs.known
        spares = Spares(known, set(heuristic.configs), heuristic.configs)
        for number, regime in enumerate(heuristic.regimes):
            where = dict(known.rows(number, regime.tree))
            rows = []
            for place, (row, old) in enumerate(
                zip(regime.rows, self.heuristic.regimes[number].rows, strict=True)
            ):
                if (row.config, row.others) != (old.config, old.others) and len(where[place]):
                    loss = np.where(problem.allowed, self._costs.loss, self._costs.loss.max())
                    row = replace(row, then=spares.of(row.config, row.others, where[place], loss))
                rows.append(row)
            regimes = list(heuristic.regimes)
            regimes[number] = replace(regime, rows=tuple(rows))
            heuristic = Heuristic(tuple(regimes))
        self.heuristic, self.columns = heuristic, known.columns(heuristic)


def _better(problem: Problem, drop: CostDrop, where: str, penalise_untimed: bool) -> str:
    text = f"a fresh one chooses better {where}"
    if problem.table.cells is Cells.WINNERS:
        return text
    penalised = ", with untimed choices penalised" if penalise_untimed else ""
    mean, error = drop.mean()
    return f"{text}, by {math.expm1(mean):.1%} +- {2 * error:.1%}{penalised}"


def _not_allowed(problem: Problem, heuristic: Heuristic) -> str | None:
    """What the spec no longer allows, if anything."""
    kernel = problem.kernel
    if [regime.name for regime in heuristic.regimes] != [regime.name for regime in kernel.regimes]:
        return "the regimes of the spec changed"
    classes: Mapping[str, object] = dict.fromkeys(entry.name for entry in kernel.classes)
    for regime, spec in zip(heuristic.regimes, kernel.regimes, strict=True):
        for feature in split_features(regime.tree):
            if feature not in spec.split_on or feature not in problem.names:
                return f"{regime.name} asks about {feature}, which split_on no longer names"
        too_many = len(regime.rows) > (spec.max_rows or kernel.budget.max_rows)
        if too_many or depth(regime.tree) > kernel.budget.max_depth:
            return f"{regime.name} has more rows or questions than the budget allows"
        if any(name not in classes for row in regime.rows for name in row.others):
            return "the classes of the spec changed"
    return None
