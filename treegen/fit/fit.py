"""From a problem to a heuristic: the stages of the fit, in the order in which they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split, StepTree, first, fits
from treegen.core.problem import UNIT, Problem
from treegen.core.spec import Config, Regime
from treegen.fit.costs import FAILED, losses
from treegen.fit.decide import Scenarios
from treegen.fit.search import Leaf, RowTree, Training, local_search
from treegen.fit.splits import CandidateSplit, candidate_splits, low_sides

Ints = npt.NDArray[np.int64]

_SHORTLIST = 40  # configs that the search of a regime tries
_BROKEN = round(0.4 * UNIT)  # what a runner-up probably loses where a config may not be launched
_SMALLEST_ROW = 12  # scenarios: fewer say little about the next one
_MOST_SPARES = 4  # runners-up of a row
_NEW = round(0.03 * UNIT)  # how much faster a runner-up must be that no row launches otherwise


def fit(problem: Problem) -> Heuristic:
    """The heuristic of least loss that was found within the kernel's budget; equal on every machine.

    A regime without scenarios, as a part of a table may have, gets what is best in all scenarios.
    """
    kernel, budget = problem.kernel, problem.kernel.budget
    loss = np.where(problem.allowed, losses(problem), _BROKEN)
    known = Scenarios(problem)
    searches = []
    for regime, scenarios in zip(kernel.regimes, known.regimes, strict=True):
        scenarios = scenarios if len(scenarios) else np.arange(len(loss))
        columns = _shortlist(loss[scenarios], np.ones(len(scenarios), dtype=np.int64), _SHORTLIST)
        searches.append(_Search(known, regime, scenarios, loss, columns))
    every = np.unique(np.concatenate([found.columns for found in searches]))
    few = _few_configs(searches, budget.max_configs)
    searches = [_Search(known, s.regime, s.scenarios, loss, few) for s in searches]
    cells = {found.regime.name: found.cells() for found in searches}
    used = {config for rows in cells.values() for main, others in rows for config in (main, *others.values())}
    listed = {problem.configs[column] for column in every}
    spares = Spares(known, used, sorted(used | listed))
    regimes = []
    for found in searches:
        rows = []
        for (main, others), where in zip(cells[found.regime.name], found.rows(), strict=True):
            rows.append(Row(main, others, spares.of(main, others, where, loss)))
        regimes.append(RegimeRows(found.regime.name, found.step_tree(), tuple(rows)))
    return Heuristic(tuple(regimes))


class _Search:
    """The tree of a regime over some columns of the problem's configs."""

    def __init__(self, known: Scenarios, regime: Regime, scenarios: Ints, loss: Ints, columns: Ints) -> None:
        problem, budget = known.problem, known.problem.kernel.budget
        self.regime, self.scenarios, self._problem = regime, scenarios, problem
        self.columns, self._loss = columns, loss[np.ix_(scenarios, columns)]
        self._features = [name for name in regime.split_on if name in problem.names]
        values = (
            np.stack([problem.column(n)[scenarios] for n in self._features], axis=1)
            if self._features
            else (np.zeros((len(scenarios), 0), dtype=np.int64))
        )
        self._splits: tuple[CandidateSplit, ...] = candidate_splits(values)
        self.training = Training(
            is_low=low_sides(self._splits, values),
            loss=self._loss.astype(np.float64),
            group=known.group[scenarios],
            classes=len(problem.kernel.classes),
            min_rows=min(_SMALLEST_ROW, max(1, len(scenarios) // 8)),
            max_depth=budget.max_depth,
            max_leaves=regime.max_rows or budget.max_rows,
            leaf_price=round(budget.row_price * UNIT * len(scenarios)),
        )
        self.tree: RowTree = local_search(self.training)
        self._cell_price = round(budget.cell_price * UNIT * len(scenarios))

    def leaves(self) -> list[Ints]:
        """For each row of the tree, low sides first, its places among the regime's scenarios."""
        return [rows for _, node, rows in self.training.nodes(self.tree) if isinstance(node, Leaf)]

    def rows(self) -> list[Ints]:
        """For each row of the tree, low sides first, its scenarios of the problem."""
        return [self.scenarios[rows] for rows in self.leaves()]

    def step_tree(self) -> StepTree:
        count = iter(range(len(self.leaves())))

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
            for rows in self.leaves()
            for k, sums in self._by_class(rows)[1].items()
        ]

    def cells(self) -> list[tuple[Config, dict[str, Config]]]:
        """For each row, the config of most classes, and the classes that gain their price by another one."""
        names = [entry.name for entry in self._problem.kernel.classes]
        result = []
        for rows in self.leaves():
            mean, own = self._by_class(rows)
            best = {k: int(sums.argmin()) for k, sums in own.items()}
            total = mean.copy()  # [columns] of the row if the column is its main config
            for k, sums in own.items():
                total += np.minimum(sums, int(sums[best[k]]) + self._cell_price)
            main = int(total.argmin())
            others = {k: b for k, b in best.items() if own[k][main] - own[k][b] > self._cell_price}
            result.append((self._config(main), {names[k]: self._config(b) for k, b in others.items()}))
        return result

    def _by_class(self, rows: Ints) -> tuple[Ints, dict[int, Ints]]:
        """[columns] the mean loss of a row, and by class the sum with one such mean on top."""
        mean = self._loss[rows].sum(axis=0) // len(rows)
        return mean, {k: self._loss[inside].sum(axis=0) + mean for k, inside in self.training.by_class(rows)}

    def _config(self, column: int) -> Config:
        return self._problem.configs[int(self.columns[column])]


def _shortlist(loss: Ints, count: Ints, most: int) -> Ints:
    """The columns that lower the sum of least losses most, added one at a time; ascending.

    loss: [cells, columns] summed over so many scenarios, count: [cells].
    """
    now = 3 * UNIT * count  # before the first column: a scenario is as bad as a choice 20 times slower
    chosen: list[int] = []
    for _ in range(min(most, loss.shape[1])):
        left = np.minimum(now[:, None], loss).sum(axis=0)
        left[chosen] = np.iinfo(np.int64).max
        chosen.append(int(left.argmin()))
        now = np.minimum(now, loss[:, chosen[-1]])
    return np.array(sorted(chosen))


def _few_configs(searches: Sequence[_Search], most: int) -> Ints:
    """The columns of at most `most` configs with which the cells of all regimes lose least."""
    every = np.unique(np.concatenate([search.columns for search in searches]))
    if len(every) <= most:
        return every
    counts, sums = [], []
    for search in searches:
        for count, cell in search.class_sums():
            wide = np.full(len(every), FAILED, dtype=np.int64)
            wide[np.searchsorted(every, search.columns)] = cell
            counts.append(count)
            sums.append(wide)
    return np.asarray(every[_shortlist(np.array(sums), np.array(counts), most)])


class Spares:
    """Finds what a row launches where its configs break a constraint."""

    def __init__(self, known: Scenarios, used: set[Config], configs: Sequence[Config]) -> None:
        problem = known.problem
        self._used, self._known = used, known
        fallback = problem.kernel.fallback  # follows all others
        self._configs = [c for c in configs if c != fallback and c in known.column]
        kernel, limits = problem.kernel, problem.device.limits
        steps = set(kernel.features) | set(kernel.derived)
        steps -= set(kernel.fixed)
        asked = sorted({n for rule in kernel.constraints for n in rule.names})
        self._sometimes = {
            c: any(rule.binds(c) and rule.names & steps for rule in kernel.constraints) for c in configs
        }
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

    def of(self, main: Config, others: Mapping[str, Config], rows: Ints, loss: Ints) -> tuple[Config, ...]:
        """The configs to try after a row's own, those of least loss first; only what some model needs."""
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
