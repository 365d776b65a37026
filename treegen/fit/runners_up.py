"""Runners-up: what a row launches where its own configs break a constraint."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from treegen.core.heuristic import Row
from treegen.core.launches import Columns, Ints, as_columns, first_of, fitting, with_derived
from treegen.core.problem import UNIT, Problem
from treegen.core.spec import Config
from treegen.fit.costs import Evidence, Scenarios

BROKEN = round(0.4 * UNIT)
"""The loss that counts where a config may not be launched: about what its runner-up loses."""

_MOST = 4  # runners-up of a row
_GAIN_OF_ANOTHER_CONFIG = round(0.03 * UNIT)  # at least, of a runner-up that no row launches otherwise


class RunnersUp:
    """Finds what a row launches where its configs break a constraint."""

    def __init__(
        self, grouped: Scenarios, used: set[Config], configs: Sequence[Config], change: Evidence
    ) -> None:
        problem = grouped.problem
        self._used, self._grouped, self._change = used, grouped, change
        fallback = problem.kernel.fallback  # follows all others
        self._configs = [c for c in configs if c != fallback and c in grouped.column]
        kernel = problem.kernel
        steps = {*kernel.features, *kernel.derived} - set(kernel.fixed)
        of_steps = [rule for rule in kernel.constraints if rule.names & steps]
        self._sometimes = {c for c in configs if any(rule.binds(c) for rule in of_steps)}
        self._names = [entry.name for entry in kernel.classes]
        models = _models(problem)
        count = len(next(iter(models.values()), "1"))
        known = with_derived(kernel, problem.device.limits, models)
        usable = np.array([fitting(kernel, config, known, count) for config in configs]).T
        kinds = first_of(kernel.classes, known, count)
        # The class of a model and what fits it.
        named = [self._names[kind] for kind in kinds]
        usable_by = (frozenset(itertools.compress(configs, fits)) for fits in usable)
        self._models = list(dict.fromkeys(zip(named, usable_by, strict=True)))

    def of(self, row: Row, rows: Ints, loss: Ints) -> tuple[Config, ...]:
        """The configs to try after a row's own: an earlier row's, unless others are evidently better.

        rows: the row's scenarios. loss: [scenarios, configs].
        """
        earlier, best = row.then, self._best(row, rows, loss)
        if earlier == best or not earlier or not best or not set(earlier) <= set(self._grouped.column):
            return best
        if self._served(replace(row, then=best)) - self._served(row):
            return best
        before, now = (self._launched(replace(row, then=configs), rows, loss) for configs in (earlier, best))
        return best if self._change.pays((before - now).astype(np.float64)) else earlier

    def _served(self, row: Row) -> set[int]:
        """The models for which some config of the row may always be launched."""
        always = {name: set(row.candidates(name)) - self._sometimes for name in self._names}
        return {place for place, (name, usable) in enumerate(self._models) if always[name] & usable}

    def _launched(self, row: Row, rows: Ints, loss: Ints) -> Ints:
        """[rows] the loss of what the row launches."""
        losses, column, allowed = [], self._grouped.column, self._grouped.problem.allowed
        for scenario in rows:
            tried = (column[c] for c in row.candidates(self._names[self._grouped.group[scenario]]))
            losses.append(next((loss[scenario, c] for c in tried if allowed[scenario, c]), BROKEN))
        return np.array(losses, dtype=np.int64)

    def _best(self, row: Row, rows: Ints, loss: Ints) -> tuple[Config, ...]:
        """Those of least loss first; only what some model needs."""
        main, served = row.config, self._served(replace(row, then=()))
        wanting = [model for place, model in enumerate(self._models) if place not in served]
        runners_up: list[Config] = []
        allowed, column = self._grouped.problem.allowed, self._grouped.column
        left = rows  # scenarios of the row in which none of its configs may be launched
        for own_config in (main, *row.others.values()):
            if own_config in column:  # a kept row may hold a config that the table no longer has
                left = left[~allowed[left, column[own_config]]]
        while wanting and len(runners_up) < _MOST:
            classes = sorted({self._names.index(name) for name, _ in wanting})
            like = left if len(left) else rows[np.isin(self._grouped.group[rows], classes)]
            mean = loss[like if len(like) else rows].mean(axis=0)
            left_over = [c for c in self._configs if c != main and c not in runners_up]
            dearer = {c: 0 if c in self._used else _GAIN_OF_ANOTHER_CONFIG for c in left_over}
            ranked = sorted(left_over, key=lambda c: (mean[column[c]] + dearer[c], c))
            config = next((c for c in ranked if any(c in usable for _, usable in wanting)), None)
            if config is None:
                break
            runners_up.append(config)
            self._used.add(config)
            left = left[~allowed[left, column[config]]]
            if config not in self._sometimes:
                wanting = [(name, usable) for name, usable in wanting if config not in usable]
        return tuple(runners_up)


def _models(problem: Problem) -> Columns:
    """Constants of the table's models, and of these with one value changed, halved or doubled."""
    fixed = [name for name in problem.kernel.fixed if name in problem.names]
    raw = [name for name in fixed if name in problem.kernel.constants] or fixed
    measured = set(zip(*(problem.column(name).tolist() for name in raw), strict=True))
    models = set(measured)
    for place in range(len(raw)):
        for value in {v for model in measured for v in (model[place], model[place] // 2, model[place] * 2)}:
            models |= {(*m[:place], value, *m[place + 1 :]) for m in measured}
    return as_columns(dict(zip(raw, zip(*sorted(models), strict=True), strict=True)))
