"""The search for the rows of one regime, over some of a problem's configs, and what its rows must pay."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from treegen.core.heuristic import RegimeRows, Row, Split, StepTree, depth, questions, split_features
from treegen.core.launches import Ints
from treegen.core.problem import UNIT
from treegen.core.spec import Regime
from treegen.core.table import Cells
from treegen.fit.costs import Evidence, Scenarios, copies, groups_of
from treegen.fit.search import NONE, Leaf, Node, RowTree, Training, changed_search, local_search
from treegen.fit.splits import CandidateSplit, candidate_splits, lookup_bounds, low_sides

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


def change_evidence(noise: int) -> Evidence:
    """What a change of earlier rows must pay. noise: of a table, in cost steps."""
    return Evidence(Z_CHANGE, WORTH, Z_CONFIGS * noise)


class RegimeSearch:
    """The tree of a regime over some columns of the problem's configs."""

    def __init__(
        self, grouped: Scenarios, place: int, loss: Ints, columns: Ints, noise: int, start: RegimeRows | None
    ) -> None:
        problem, budget = grouped.problem, grouped.problem.kernel.budget
        self.regime: Regime = problem.kernel.regimes[place]
        self.scenarios = grouped.regimes[place] if len(grouped.regimes[place]) else np.arange(len(loss))
        self._grouped, self._problem, self.columns = grouped, problem, columns
        self._configs = [problem.configs[column] for column in columns]
        self._class_names = [entry.name for entry in problem.kernel.classes]
        own = problem.features[self.scenarios]
        copy = copies(own)  # copies of a scenario are one piece of evidence
        _, chosen = np.unique(copy, return_index=True)
        self._loss = np.zeros((len(chosen), len(columns)), dtype=np.int64)
        np.add.at(self._loss, copy, loss[np.ix_(self.scenarios, columns)])
        self._features = [name for name in self.regime.split_on if name in problem.names]
        values = own[chosen][:, [problem.names.index(name) for name in self._features]]
        groups = groups_of(problem)
        cluster = groups if groups.any() else np.arange(len(loss))
        start = start if start is not None and self._may_ask(start.tree) else None
        earlier = questions(start.tree) if start is not None else ()
        bounds = [CandidateSplit(self._features.index(q.feature), q.threshold) for q in earlier]
        ruled = self._ruled(self.scenarios[chosen])
        self._splits: tuple[CandidateSplit, ...] = candidate_splits(values, bounds, ruled)
        self.training = Training(
            is_low=low_sides(self._splits, values),
            loss=self._loss.astype(np.float64),
            group=grouped.group[self.scenarios][chosen],
            classes=len(problem.kernel.classes),
            max_depth=budget.max_depth,
            max_leaves=self.regime.max_rows or budget.max_rows,
            leaf_price=round(budget.row_price * UNIT * len(self.scenarios)),
            cluster=cluster[self.scenarios][chosen],
            enough=0 if ruled else min(_ENOUGH, max(1, len(self.scenarios) // 8)),
            row=Evidence(0.0, noise=Z_NOISE * noise),
            small=Evidence(Z_SMALL),
            change=change_evidence(noise),
            isolates=bool(ruled),
        )
        self._cell_price = round(budget.cell_price * UNIT * len(self.scenarios))
        self._before = start.rows if start is not None else ()
        self.tree: RowTree = (
            local_search(self.training)
            if start is None
            else changed_search(self.training, self._numbered(start.tree, iter(range(len(bounds)))))
        )
        nodes = self.training.nodes(self.tree)
        # The rows of the tree, low sides first, each with its scenarios by their place in the training.
        self._leaves = [(node, rows) for _, node, rows in nodes if isinstance(node, Leaf)]

    def _may_ask(self, tree: StepTree) -> bool:
        """Whether this search may ask about all that an earlier tree asks about."""
        known = set(split_features(tree)) <= set(self._features)
        return known and depth(tree) <= self._problem.kernel.budget.max_depth

    def _ruled(self, scenarios: Ints) -> dict[int, dict[int, int]]:
        """By place of a feature, where the files of a table of winners go over to the next entry."""
        table = self._problem.table
        rename = self._problem.kernel.renamed(table.kernel)
        if table.cells is not Cells.WINNERS:
            return {}
        raw = table.features[self._problem.table_rows][scenarios]
        bounds = {}
        for column, rule in table.provenance.get("lookup", {}).items():
            place = table.feature_names.index(column)
            name = rename.get(column, column)
            if name in self._features:
                others = np.delete(raw, place, axis=1)
                bounds[self._features.index(name)] = lookup_bounds(raw[:, place], others, rule)
        return bounds

    def _numbered(self, tree: StepTree, number: Iterator[int]) -> RowTree:
        """An earlier tree over this search's columns; its bounds are the first splits, in order."""
        if isinstance(tree, Split):
            split = next(number)
            return Node(split, self._numbered(tree.low, number), self._numbered(tree.high, number), split)
        row = self._before[tree]
        column = {config: place for place, config in enumerate(self._configs)}
        cells = tuple(column.get(row.others.get(name, row.config), NONE) for name in self._class_names)
        return Leaf(cells, cells, tree)

    def step_tree(self) -> StepTree:
        count = iter(range(len(self._leaves)))

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
            for _, rows in self._leaves
            for k, sums in self._by_class(rows)[1].items()
        ]

    def rows(self) -> list[Row]:
        """The rows of the tree, low sides first, without runners-up other than an earlier row's."""
        return [
            self._row(rows) if leaf.row == NONE else self._changed_row(leaf, rows)
            for leaf, rows in self._leaves
        ]

    def _row(self, rows: Ints) -> Row:
        """The config of most classes, and the classes that gain their price by another one, evidently."""
        mean, own = self._by_class(rows)
        best = {k: int(sums.argmin()) for k, sums in own.items()}
        total = mean.copy()  # [columns] of the row if the column is its main config
        for k, sums in own.items():
            total += np.minimum(sums, int(sums[best[k]]) + self._cell_price)
        main, others = int(total.argmin()), {}
        for k, inside in self.training.by_class(rows):
            saved = self.training.loss[inside, main] - self.training.loss[inside, best[k]]
            if own[k][main] - own[k][best[k]] > self._cell_price and self.training.row.pays(saved):
                others[self._class_names[k]] = self._configs[best[k]]
        return Row(self._configs[main], others)

    def _changed_row(self, leaf: Leaf, rows: Ints) -> Row:
        """An earlier row with the cells that changed."""
        old, names = self._before[leaf.row], self._class_names
        count = {k: len(inside) for k, inside in self.training.by_class(rows)}
        shared = [k for k in count if names[k] not in old.others] or list(count)
        main = old.config
        if main not in self._grouped.column or (
            shared and all(leaf.cells[k] != leaf.before[k] for k in shared)
        ):
            most = max(shared, key=lambda k: count[k], default=0)
            main = self._configs[leaf.cells[most]]
        others = {n: c for n, c in old.others.items() if n in names and c in self._grouped.column}
        others |= {names[k]: self._configs[leaf.cells[k]] for k in count}
        others = {name: config for name, config in others.items() if config != main}
        return Row(main, others, old.then)

    def _by_class(self, rows: Ints) -> tuple[Ints, dict[int, Ints]]:
        """[columns] the mean loss of a row, and by class the sum with one such mean on top."""
        mean = self._loss[rows].sum(axis=0) // max(1, len(rows))
        return mean, {k: self._loss[inside].sum(axis=0) + mean for k, inside in self.training.by_class(rows)}
