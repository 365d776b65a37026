"""Runners-up: what a row launches where its own configs break a constraint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treegen.core.heuristic import Row, first, fits
from treegen.core.problem import UNIT, Problem
from treegen.core.spec import Config
from treegen.fit.decide import Scenarios
from treegen.fit.evidence import Evidence

Ints = npt.NDArray[np.int64]

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
        earlier, best = row.then, self._best(row.config, row.others, rows, loss)
        if earlier == best or not earlier or not best or not set(earlier) <= set(self._grouped.column):
            return best
        if self._served(replace(row, then=best)) - self._served(row):
            return best
        before, now = (self._launched(replace(row, then=configs), rows, loss) for configs in (earlier, best))
        return best if self._change.pays((before - now).astype(np.float64)) else earlier

    def _served(self, row: Row) -> set[int]:
        """The models for which some config of the row may always be launched."""
        always = [(name, {c for c in usable if not self._sometimes[c]}) for name, usable in self._models]
        return {i for i, (name, usable) in enumerate(always) if usable & set(row.candidates(name))}

    def _launched(self, row: Row, rows: Ints, loss: Ints) -> Ints:
        """[rows] the loss of what the row launches."""
        result = np.full(len(rows), BROKEN)
        for place, scenario in enumerate(rows):
            name = self._names[self._grouped.group[scenario]]
            for config in row.candidates(name):
                if self._grouped.problem.allowed[scenario, self._grouped.column[config]]:
                    result[place] = loss[scenario, self._grouped.column[config]]
                    break
        return result

    def _best(self, main: Config, others: Mapping[str, Config], rows: Ints, loss: Ints) -> tuple[Config, ...]:
        """Those of least loss first; only what some model needs."""
        wanting: list[tuple[str, frozenset[Config]]] = []
        for name, usable in self._models:
            own = [others[name], main] if name in others else [main]
            if not any(c in usable and not self._sometimes[c] for c in own):
                wanting.append((name, usable))
        runners_up: list[Config] = []
        allowed, column = self._grouped.problem.allowed, self._grouped.column
        left = rows  # scenarios of the row in which none of its configs may be launched
        for own_config in (main, *others.values()):
            if own_config in column:  # a kept row may hold a config that the table no longer has
                left = left[~allowed[left, column[own_config]]]
        while wanting and len(runners_up) < _MOST:
            classes = sorted({self._number[name] for name, _ in wanting})
            like = left if len(left) else rows[np.isin(self._grouped.group[rows], classes)]
            mean = loss[like if len(like) else rows].mean(axis=0)
            ranked = sorted(
                (c for c in self._configs if c != main and c not in runners_up),
                key=lambda c: (mean[column[c]] + (c not in self._used) * _GAIN_OF_ANOTHER_CONFIG, c),
            )
            config = next((c for c in ranked if any(c in usable for _, usable in wanting)), None)
            if config is None:
                break
            runners_up.append(config)
            self._used.add(config)
            left = left[~allowed[left, column[config]]]
            if not self._sometimes[config]:
                wanting = [(name, usable) for name, usable in wanting if config not in usable]
        return tuple(runners_up)


def _models(problem: Problem) -> list[dict[str, int]]:
    """Constants of the table's models, and of these with one value changed, halved or doubled."""
    fixed = [name for name in problem.kernel.fixed if name in problem.names]
    raw = [name for name in fixed if name in problem.kernel.constants] or fixed
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
