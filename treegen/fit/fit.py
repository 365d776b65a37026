"""From a problem to a heuristic: the stages of the fit, in the order in which they run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from treegen.core.heuristic import (
    Heuristic,
    RegimeRows,
    Row,
    Split,
    StepTree,
    depth,
    first,
    fits,
    split_features,
)
from treegen.core.problem import UNIT, UNTIMED_PENALTY, Problem
from treegen.core.spec import Config, Regime
from treegen.fit.costs import FAILED, copies, groups_of, losses, table_noise
from treegen.fit.decide import ABSENT, Scenarios
from treegen.fit.evidence import Evidence
from treegen.fit.search import NONE, Leaf, Node, RowTree, Training, changed_search, local_search
from treegen.fit.splits import CandidateSplit, candidate_splits, low_sides

Ints = npt.NDArray[np.int64]

_SHORTLIST = 40  # configs that the search of a regime tries
_BROKEN = round(0.4 * UNIT)  # what a runner-up probably loses where a config may not be launched
_MOST_SPARES = 4  # runners-up of a row
_NEW = round(0.03 * UNIT)  # how much faster a runner-up must be that no row launches otherwise

_ENOUGH = 12
"""Scenarios of a row, or an eighth of the regime's, whose gain needs no agreement of models."""

Z_SMALL = 1.85
"""Standard errors over models by which a smaller row must pay: as many as three models that agree have."""

Z_NOISE = 3.0
"""Standard errors, by the noise of the repeats alone, by which every row and cell must pay. So a table of
nothing but noise gets one row."""

Z_CHANGE = 3.0
"""Standard errors by which a change of an earlier row or bound must pay: P = 0.0013."""

Z_CONFIGS = 4.5
"""Standard errors, by the noise of the repeats alone, by which such a change must pay: P = 3e-6. A cell gets
the best of all configs, so that thousands of cells with configs are tried."""

WORTH = round(math.log(1.005) * UNIT)
"""What a change must save where it changes something, and what a module may lose at most beside a fresh fit:
0.5% of the time, in cost steps."""


class Origin(StrEnum):
    """Where the rows of a module come from."""

    KEPT = "kept"  # from the module before
    EDITED = "edited"  # from there, with changes that the table gives evidence for
    FRESH = "fresh"  # fitted to the table alone


def fit(problem: Problem) -> Heuristic:
    """The heuristic of least loss that was found within the kernel's budget; equal on every machine.

    A regime without scenarios, as a part of a table may have, gets what is best in all scenarios.
    """
    found = _Fit(problem)
    return found.heuristic(found.few, None)


def refit(problem: Problem, previous: Heuristic | None) -> tuple[Heuristic, Origin]:
    """The previous heuristic with what the table gives evidence to change, or a fresh one.

    It is launched if it loses at most 0.5% of the time beside the fresh one, or what noise explains.
    """
    found = _Fit(problem)
    fresh = found.heuristic(found.few, None)
    if previous is not None:
        for columns in (found.few_after(previous), found.few):
            changed = found.heuristic(columns, previous)
            if found.is_as_good(changed, fresh):
                return changed, Origin.KEPT if changed == previous else Origin.EDITED
    return fresh, Origin.FRESH


class _Fit:
    """The fits of a problem: fresh, or from an earlier heuristic."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.known = problem, Scenarios(problem)
        measured = losses(problem)
        self.loss = np.where(problem.allowed, measured, _BROKEN)
        self._measured, self._noise = measured, table_noise(problem.table)
        self._change = _change(self._noise)
        self._searches = []
        for place, scenarios in enumerate(self.known.regimes):
            loss = self.loss[scenarios] if len(scenarios) else self.loss
            columns = _shortlist(loss, np.ones(len(loss), dtype=np.int64), _SHORTLIST)
            self._searches.append(_Search(self.known, place, self.loss, columns, self._noise, None))
        self.few = _few_configs(self._searches, problem.kernel.budget.max_configs)

    def few_after(self, previous: Heuristic) -> Ints:
        """The columns of an earlier heuristic's configs, and of the best others up to the budget."""
        column, most = self.known.column, self.problem.kernel.budget.max_configs
        rows = [row for regime in previous.regimes for row in regime.rows]
        used = sorted({column[c] for row in rows for c in (row.config, *row.others.values()) if c in column})
        return _few_configs(self._searches, most, used if len(used) <= most else ())

    def heuristic(self, columns: Ints, previous: Heuristic | None) -> Heuristic:
        """The heuristic over some columns of the problem's configs."""
        problem, known = self.problem, self.known
        before = {r.name: r for r in previous.regimes} if previous is not None else {}
        searches = [
            _Search(known, place, self.loss, columns, self._noise, before.get(regime.name))
            for place, regime in enumerate(problem.kernel.regimes)
        ]
        cells = [found.rows() for found in searches]
        used = {config for rows in cells for row in rows for config in (row.config, *row.others.values())}
        every = np.unique(np.concatenate([found.columns for found in self._searches]))
        listed = {problem.configs[column] for column in every}
        spares = Spares(known, used, sorted(used | listed), self._change)
        regimes = []
        for found, rows in zip(searches, cells, strict=True):
            where = found.scenarios_of_rows()
            with_spares = [
                replace(row, then=spares.of(row, inside, self.loss))
                for row, inside in zip(rows, where, strict=True)
            ]
            regimes.append(RegimeRows(found.regime.name, found.step_tree(), tuple(with_spares)))
        return Heuristic(tuple(regimes))

    def is_as_good(self, one: Heuristic, other: Heuristic) -> bool:
        """Whether a heuristic loses at most 0.5% beside another, or what noise explains where they differ."""
        ours, theirs = (self.known.columns(heuristic) for heuristic in (one, other))
        lost = int((self._loss_of(ours) - self._loss_of(theirs)).sum())
        noise = Z_CHANGE * self._noise * math.sqrt(int((ours != theirs).sum()))
        return lost <= max(WORTH * len(ours), noise)

    def _loss_of(self, columns: Ints) -> Ints:
        """[scenarios] the loss of what is launched."""
        loss = self._measured[np.arange(len(columns)), columns]
        return np.where(columns == ABSENT, UNTIMED_PENALTY, loss)


def _change(noise: int) -> Evidence:
    return Evidence(Z_CHANGE, WORTH, Z_CONFIGS * noise)


class _Search:
    """The tree of a regime over some columns of the problem's configs."""

    def __init__(
        self,
        known: Scenarios,
        place: int,
        loss: Ints,
        columns: Ints,
        noise: int,
        start: RegimeRows | None,
    ) -> None:
        problem, budget = known.problem, known.problem.kernel.budget
        self.regime: Regime = problem.kernel.regimes[place]
        self.scenarios = known.regimes[place] if len(known.regimes[place]) else np.arange(len(loss))
        self._known, self._place, self._problem, self.columns = known, place, problem, columns
        own = problem.features[self.scenarios]
        copy = copies(own)  # copies of a scenario are one piece of evidence
        _, chosen = np.unique(copy, return_index=True)
        self._loss = np.zeros((len(chosen), len(columns)), dtype=np.int64)
        np.add.at(self._loss, copy, loss[np.ix_(self.scenarios, columns)])
        self._features = [name for name in self.regime.split_on if name in problem.names]
        values = own[chosen][:, [problem.names.index(name) for name in self._features]]
        groups = groups_of(problem)
        cluster = groups if groups.any() else np.arange(len(loss))
        tree, bounds = self._start(start)
        self._splits: tuple[CandidateSplit, ...] = candidate_splits(values, bounds)
        self.training = Training(
            is_low=low_sides(self._splits, values),
            loss=self._loss.astype(np.float64),
            group=known.group[self.scenarios][chosen],
            classes=len(problem.kernel.classes),
            max_depth=budget.max_depth,
            max_leaves=self.regime.max_rows or budget.max_rows,
            leaf_price=round(budget.row_price * UNIT * len(self.scenarios)),
            cluster=cluster[self.scenarios][chosen],
            enough=min(_ENOUGH, max(1, len(self.scenarios) // 8)),
            row=Evidence(0.0, noise=Z_NOISE * noise),
            small=Evidence(Z_SMALL),
            change=_change(noise),
        )
        self._cell_price = round(budget.cell_price * UNIT * len(self.scenarios))
        self._before = start.rows if tree is not None and start is not None else ()
        self.tree: RowTree = (
            local_search(self.training)
            if tree is None
            else changed_search(self.training, self._numbered(tree, iter(range(len(bounds)))))
        )

    def _start(self, start: RegimeRows | None) -> tuple[StepTree | None, list[CandidateSplit]]:
        """An earlier tree and its bounds, low sides last, if this search may ask its questions."""
        if start is None or not set(split_features(start.tree)) <= set(self._features):
            return None, []
        if depth(start.tree) > self._problem.kernel.budget.max_depth:
            return None, []
        bounds: list[CandidateSplit] = []

        def collect(node: StepTree) -> None:
            if isinstance(node, Split):
                bounds.append(CandidateSplit(self._features.index(node.feature), node.threshold))
                collect(node.low)
                collect(node.high)

        collect(start.tree)
        return start.tree, bounds

    def _numbered(self, tree: StepTree, number: Iterator[int]) -> RowTree:
        """An earlier tree over this search's columns; its bounds are the first splits, in order."""
        if isinstance(tree, Split):
            split = next(number)
            return Node(split, self._numbered(tree.low, number), self._numbered(tree.high, number), split)
        row = self._before[tree]
        column = {self._config(place): place for place in range(len(self.columns))}
        names = [entry.name for entry in self._problem.kernel.classes]
        cells = tuple(column.get(row.others.get(name, row.config), NONE) for name in names)
        return Leaf(cells, cells, tree)

    def _leaves(self) -> list[tuple[Leaf, Ints]]:
        """The rows of the tree, low sides first, each with its scenarios by their place in the training."""
        nodes = self.training.nodes(self.tree)
        return [(node, rows) for _, node, rows in nodes if isinstance(node, Leaf)]

    def scenarios_of_rows(self) -> list[Ints]:
        """For each row of the tree, low sides first, its scenarios of the problem."""
        return [rows for _, rows in self._known.rows_of(self.step_tree(), self.scenarios)]

    def step_tree(self) -> StepTree:
        count = iter(range(len(self._leaves())))

        def numbered(node: RowTree) -> StepTree:
            if isinstance(node, Leaf):
                return next(count)
            split = self._splits[node.split]
            low = numbered(node.low)
            return Split(self._features[split.feature], split.threshold, low, numbered(node.high))

        return numbered(self.tree)

    def class_sums(self) -> list[tuple[int, Ints]]:
        """Of each cell, the number of scenarios and [columns] their losses, with one of its row's mean."""
        return [
            (1 + int((self.training.group[rows] == k).sum()), sums)
            for _, rows in self._leaves()
            for k, sums in self._by_class(rows)[1].items()
        ]

    def rows(self) -> list[Row]:
        """The rows of the tree, low sides first, without runners-up other than an earlier row's."""
        return [
            self._row(rows) if leaf.row == NONE else self._changed_row(leaf, rows)
            for leaf, rows in self._leaves()
        ]

    def _row(self, rows: Ints) -> Row:
        """The config of most classes, and the classes that gain their price by another one, evidently."""
        names = [entry.name for entry in self._problem.kernel.classes]
        mean, own = self._by_class(rows)
        best = {k: int(sums.argmin()) for k, sums in own.items()}
        total = mean.copy()  # [columns] of the row if the column is its main config
        for k, sums in own.items():
            total += np.minimum(sums, int(sums[best[k]]) + self._cell_price)
        main, others = int(total.argmin()), {}
        for k, inside in self.training.by_class(rows):
            saved = self.training.loss[inside, main] - self.training.loss[inside, best[k]]
            if own[k][main] - own[k][best[k]] > self._cell_price and self.training.row.pays(saved):
                others[names[k]] = self._config(best[k])
        return Row(self._config(main), others)

    def _changed_row(self, leaf: Leaf, rows: Ints) -> Row:
        """An earlier row with the cells that changed."""
        old, names = self._before[leaf.row], [entry.name for entry in self._problem.kernel.classes]
        count = {k: len(inside) for k, inside in self.training.by_class(rows)}
        shared = [k for k in count if names[k] not in old.others] or list(count)
        main = old.config
        if main not in self._known.column or (
            shared and all(leaf.cells[k] != leaf.before[k] for k in shared)
        ):
            most = max(shared, key=lambda k: count[k], default=0)
            main = self._config(leaf.cells[most])
        others = {n: c for n, c in old.others.items() if n in names and c in self._known.column}
        others |= {names[k]: self._config(leaf.cells[k]) for k in count}
        others = {name: config for name, config in others.items() if config != main}
        return Row(main, others, old.then)

    def _by_class(self, rows: Ints) -> tuple[Ints, dict[int, Ints]]:
        """[columns] the mean loss of a row, and by class the sum with one such mean on top."""
        mean = self._loss[rows].sum(axis=0) // max(1, len(rows))
        return mean, {k: self._loss[inside].sum(axis=0) + mean for k, inside in self.training.by_class(rows)}

    def _config(self, column: int) -> Config:
        return self._problem.configs[int(self.columns[column])]


def _shortlist(loss: Ints, count: Ints, most: int, start: Sequence[int] = ()) -> Ints:
    """The columns that lower the sum of least losses most, added to those at the start; ascending.

    loss: [cells, columns] summed over so many scenarios, count: [cells].
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


def _few_configs(searches: Sequence[_Search], most: int, start: Sequence[int] = ()) -> Ints:
    """The columns of at most `most` configs, those at the start first, with which the cells lose least."""
    every = np.unique(np.concatenate([*(search.columns for search in searches), np.array(start, np.int64)]))
    if len(every) <= most:
        return every
    counts, sums = [], []
    for search in searches:
        for count, cell in search.class_sums():
            wide = np.full(len(every), FAILED, dtype=np.int64)
            wide[np.searchsorted(every, search.columns)] = cell
            counts.append(count)
            sums.append(wide)
    places = np.searchsorted(every, start).tolist()
    return np.asarray(every[_shortlist(np.array(sums), np.array(counts), most, places)])


class Spares:
    """Finds what a row launches where its configs break a constraint."""

    def __init__(
        self, known: Scenarios, used: set[Config], configs: Sequence[Config], change: Evidence
    ) -> None:
        problem = known.problem
        self._used, self._known, self._change = used, known, change
        fallback = problem.kernel.fallback  # follows all others
        self._configs = [c for c in configs if c != fallback and c in known.column]
        kernel, limits = problem.kernel, problem.device.limits
        steps = set(kernel.features) | set(kernel.derived)
        steps -= set(kernel.fixed)
        asked = sorted({n for rule in kernel.constraints for n in rule.names})
        self._sometimes = {
            c: any(rule.binds(c) and rule.names & steps for rule in kernel.constraints) for c in configs
        }
        self._names = [entry.name for entry in kernel.classes]
        self._number = {entry.name: number for number, entry in enumerate(kernel.classes)}
        self._models: list[tuple[str, frozenset[Config]]] = []
        seen = set()
        for values in _models(problem):
            point = kernel.with_derived({**limits, **values})
            name = first(kernel.classes, point)
            key = (name, *(point.get(n) for n in asked))
            if key not in seen:
                seen.add(key)
                self._models.append((name, frozenset(c for c in configs if fits(c, kernel, point))))

    def of(self, row: Row, rows: Ints, loss: Ints) -> tuple[Config, ...]:
        """The configs to try after a row's own: an earlier row's, unless others are evidently better.

        rows: the row's scenarios. loss: [scenarios, configs].
        """
        then = self._best(row.config, row.others, rows, loss)
        if row.then == then or not row.then or not then or not set(row.then) <= set(self._known.column):
            return then
        if self._served(replace(row, then=then)) - self._served(row):
            return then
        lost = [self._launched(replace(row, then=spares), rows, loss) for spares in (row.then, then)]
        return then if self._change.pays((lost[0] - lost[1]).astype(np.float64)) else row.then

    def _served(self, row: Row) -> set[int]:
        """The models for which some config of the row may always be launched."""
        always = [(name, {c for c in usable if not self._sometimes[c]}) for name, usable in self._models]
        return {i for i, (name, usable) in enumerate(always) if usable & set(row.candidates(name))}

    def _launched(self, row: Row, rows: Ints, loss: Ints) -> Ints:
        """[rows] the loss of what the row launches."""
        result = np.full(len(rows), _BROKEN)
        for place, scenario in enumerate(rows):
            name = self._names[self._known.group[scenario]]
            for config in row.candidates(name):
                if self._known.problem.allowed[scenario, self._known.column[config]]:
                    result[place] = loss[scenario, self._known.column[config]]
                    break
        return result

    def _best(self, main: Config, others: Mapping[str, Config], rows: Ints, loss: Ints) -> tuple[Config, ...]:
        """Those of least loss first; only what some model needs."""
        wanting: list[tuple[str, frozenset[Config]]] = []
        for name, usable in self._models:
            own = [others[name], main] if name in others else [main]
            if not any(c in usable and not self._sometimes[c] for c in own):
                wanting.append((name, usable))
        spares: list[Config] = []
        allowed, column = self._known.problem.allowed, self._known.column
        left = rows  # scenarios of the row in which none of its configs may be launched
        for own_config in (main, *others.values()):
            if own_config in column:  # a kept row may hold a config that the table no longer has
                left = left[~allowed[left, column[own_config]]]
        while wanting and len(spares) < _MOST_SPARES:
            classes = sorted({self._number[name] for name, _ in wanting})
            like = left if len(left) else rows[np.isin(self._known.group[rows], classes)]
            mean = loss[like if len(like) else rows].mean(axis=0)
            ranked = sorted(
                (c for c in self._configs if c != main and c not in spares),
                key=lambda c: (mean[column[c]] + (c not in self._used) * _NEW, c),
            )
            config = next((c for c in ranked if any(c in usable for _, usable in wanting)), None)
            if config is None:
                break
            spares.append(config)
            self._used.add(config)
            left = left[~allowed[left, column[config]]]
            if not self._sometimes[config]:
                wanting = [(name, usable) for name, usable in wanting if config not in usable]
        return tuple(spares)


def _models(problem: Problem) -> list[dict[str, int]]:
    """Constants of the table's models, and of these with one value changed, halved or doubled."""
    known = [name for name in problem.kernel.fixed if name in problem.names]
    raw = [name for name in known if name in problem.kernel.constants] or known
    if not raw:
        return [{}]
    table = np.unique(np.stack([problem.column(name) for name in raw], axis=1), axis=0)
    measured = [tuple(row) for row in table.tolist()]
    models = dict.fromkeys(measured)
    for place in range(len(raw)):
        values = np.unique(table[:, place])
        for value in sorted({v for own in values.tolist() for v in (own, own // 2, own * 2)}):
            models |= dict.fromkeys((*m[:place], value, *m[place + 1 :]) for m in measured)
    return [dict(zip(raw, model, strict=True)) for model in models]
