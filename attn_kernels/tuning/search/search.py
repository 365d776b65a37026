"""Search strategies: from the cells measured so far to the next round of visits.

A strategy holds no state: killed, started again or replayed, it goes on from the table alone.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from attn_kernels.tuning.problem import Problem, Shape, Task, Times
from attn_kernels.tuning.search.neighbours import Distances
from attn_kernels.tuning.search.portfolio import ABSENT, cover
from tuning_table.table import Cell

REPEATS = 2
SWEPT_AGAIN = 1.15  # times the best, up to which a sweep times a config again


@dataclass(frozen=True)
class Round:
    """Visits that belong together: they are compiled, then measured, in this order.

    share: of the whole budget, by when the round is to end.
    """

    name: str
    tasks: tuple[Task, ...]
    share: float = 1.0


class Strategy(Protocol):
    """Decides what is measured next."""

    def next_round(self, times: Times, spent: float) -> Round | None:
        """None: nothing is left that is worth its time. `spent`: share of the budget that is used up."""


def visits(
    problem: Problem, times: Times, wanted: Mapping[str, Iterable[str]], shuffle: str
) -> tuple[Task, ...]:
    """A task for each scenario that has configs wanted, in an order that `shuffle` seeds."""
    tasks = [
        Task(scenario, times.next_repeat(scenario), tuple(configs))
        for scenario, configs in wanted.items()
        if configs
    ]
    random.Random(f"{problem.seed}/{shuffle}").shuffle(tasks)
    return tuple(tasks)


class Full:
    """Every candidate in every scenario, and once more whatever may be the best there."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem

    def next_round(self, times: Times, spent: float) -> Round | None:
        problem = self._problem
        for repeat in range(1, REPEATS + 1):
            wanted: dict[str, list[str]] = {}
            for scenario, configs in problem.candidates.items():
                tried, slowdowns = times.measured(scenario), times.slowdowns(scenario)
                wanted[scenario] = [
                    config
                    for config in configs
                    if len(tried.get(config, ())) < repeat
                    and (repeat == 1 or slowdowns.get(config, ABSENT) <= SWEPT_AGAIN)
                ]
            tasks = visits(problem, times, wanted, f"full/{repeat}")
            if tasks:
                return Round(f"sweep, repeat {repeat}", tasks)
        return None


@dataclass(frozen=True)
class RaceRules:
    """How much a race explores.

    explore: scenarios swept first, of the commonest family's commonest shape; of every other family's; of
    every other shape (of these only configs that are not hopeless). explore_share: of the budget, at most.
    hopeless: a config this much slower than the best in all of the nearest `neighbours` scenarios where it
    was timed is not tried. portfolio_loss, portfolio_most: when the portfolio is large enough. again: slower
    than this times the best, a config is not timed again. refine: scenarios swept at a time once all is done.
    """

    explore: tuple[int, int, int] = (24, 8, 4)
    explore_share: float = 0.6
    hopeless: float = 1.15
    neighbours: int = 5
    portfolio_loss: float = 0.002
    portfolio_most: int = 32
    again: float = 1.3
    refine: int = 16


@dataclass(frozen=True)
class _Seen:
    """The times of one moment: which configs were tried in each scenario, and the slowdowns of those that
    did not fail."""

    tried: Mapping[str, Mapping[str, Sequence[Cell]]]
    slowdowns: Mapping[str, Mapping[str, float]]


class Race:
    """Sweep a few scenarios that differ, choose a portfolio of configs there, time it everywhere; with the
    time that is left, sweep more scenarios where the swept ones are farthest, and let the portfolio grow.

    With time enough it ends where no config is left that might win.
    """

    def __init__(self, problem: Problem, rules: RaceRules | None = None) -> None:
        self._problem = problem
        self._rules = rules or RaceRules()
        self._distances = Distances(problem)
        self._scenarios = tuple(s for s in problem.scenarios if problem.candidates[s])
        self._first, self._second = self._sweeps()
        self._alike = {scenario: self._others_of_family(scenario) for scenario in self._scenarios}

    def next_round(self, times: Times, spent: float) -> Round | None:
        rules, problem = self._rules, self._problem
        seen = _Seen(
            {s: times.measured(s) for s in self._scenarios},
            {s: times.slowdowns(s) for s in self._scenarios},
        )
        if spent < rules.explore_share:
            for name, scenarios, hopeless_too in (
                ("families", self._first, True),
                ("shapes", self._second, False),
            ):
                wanted = {s: self._untried(seen, s, hopeless_too=hopeless_too) for s in scenarios}
                tasks = visits(problem, times, wanted, name)
                if tasks:
                    return Round(f"explore {name}", tasks, rules.explore_share)
        swept = [s for s in self._scenarios if seen.tried[s] and not self._untried(seen, s)]
        portfolio = set(self._portfolio(seen, swept))
        for repeat in range(1, REPEATS + 1):
            wanted = {s: self._due(seen, s, portfolio, repeat) for s in self._scenarios}
            tasks = visits(problem, times, wanted, f"portfolio/{repeat}/{len(swept)}")
            if tasks:
                return Round(f"portfolio of {len(portfolio)}, repeat {repeat}", tasks)
        # Where nothing has a time, a config that was slow elsewhere is better than none.
        left = {s: self._untried(seen, s, hopeless_too=not seen.slowdowns[s]) for s in self._scenarios}
        unsure = [s for s, configs in left.items() if configs]
        known = [s for s in swept if not left[s]]
        wanted = {s: left[s] for s in self._distances.farthest_first(unsure, rules.refine, known)}
        tasks = visits(problem, times, wanted, f"refine/{len(swept)}")
        return Round("refine", tasks) if tasks else None

    def _portfolio(self, seen: _Seen, swept: Sequence[str]) -> tuple[str, ...]:
        """The configs to time everywhere: a cover of the swept scenarios, and the best of each variant."""
        problem, rules = self._problem, self._rules
        weights = self._weights(swept)
        slowdowns = {scenario: seen.slowdowns[scenario] for scenario in swept}
        chosen = cover(
            slowdowns,
            weights,
            start=self._everywhere(seen),
            loss=rules.portfolio_loss,
            most=rules.portfolio_most,
        )
        covered = {problem.variants[config] for config in chosen}
        best: dict[str, tuple[float, str]] = {}
        for config in problem.configs:
            variant = problem.variants[config]
            if variant not in covered:
                lost = sum(
                    weights[s] * math.log(min(ABSENT, slowdowns[s].get(config, ABSENT))) for s in swept
                )
                if variant not in best or lost < best[variant][0]:
                    best[variant] = (lost, config)
        return (*chosen, *(config for _, config in best.values()))

    def _sweeps(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Scenarios to sweep first: where every candidate is tried, and where no hopeless one is."""
        problem = self._problem
        shapes: dict[Shape, list[str]] = {}
        for scenario in self._scenarios:
            shapes.setdefault(problem.shape(scenario), []).append(scenario)
        families = Counter(problem.family(scenario) for scenario in self._scenarios)
        main, other, rest = self._rules.explore
        first: list[str] = []
        second: list[str] = []
        begun: set[Shape] = set()
        for scenarios in sorted(shapes.values(), key=len, reverse=True):
            family = problem.family(scenarios[0])
            if family in begun:
                second += self._distances.farthest_first(scenarios, rest)
                continue
            count = main if family == families.most_common(1)[0][0] else other
            begun.add(family)
            first += self._distances.farthest_first(scenarios, count)
        return tuple(first), tuple(second)

    def _others_of_family(self, scenario: str) -> list[str]:
        """The other scenarios of its family, nearest first."""
        family = self._problem.family(scenario)
        others = [s for s in self._scenarios if s != scenario and self._problem.family(s) == family]
        return self._distances.nearest(scenario, others, len(others))

    def _untried(self, seen: _Seen, scenario: str, *, hopeless_too: bool = False) -> list[str]:
        tried = seen.tried[scenario]
        untried = [config for config in self._problem.candidates[scenario] if config not in tried]
        return [c for c in untried if hopeless_too or not self._hopeless(seen, scenario, c)]

    def _hopeless(self, seen: _Seen, scenario: str, config: str) -> bool:
        """Whether the config was slow, or failed, in the nearest scenarios of this family that tried it."""
        found = 0
        for other in self._alike[scenario]:
            if config not in seen.tried[other]:
                continue
            if seen.slowdowns[other].get(config, ABSENT) <= self._rules.hopeless:
                return False
            found += 1
            if found == self._rules.neighbours:
                return True
        return False

    def _weights(self, swept: Sequence[str]) -> dict[str, float]:
        """How many scenarios each swept one speaks for: those to which it is the nearest."""
        weights = dict.fromkeys(swept, 0.0)
        for scenario in self._scenarios if swept else ():
            weights[self._distances.nearest(scenario, swept, 1)[0]] += 1.0
        return weights

    def _everywhere(self, seen: _Seen) -> tuple[str, ...]:
        """Configs timed wherever they may be: the portfolio so far."""
        possible = self._problem.configs
        done = Counter(c for row in seen.tried.values() for c in row)
        return tuple(c for c in possible if done[c] == possible[c])

    def _due(self, seen: _Seen, scenario: str, portfolio: set[str], repeat: int) -> list[str]:
        """Configs that lack this repeat: of the portfolio, and whatever may be the best."""
        tried, slowdowns = seen.tried[scenario], seen.slowdowns[scenario]
        candidates = self._problem.candidates[scenario]
        always = self._problem.always.get(scenario, ())
        if repeat == 1:
            return [c for c in candidates if (c in portfolio or c in always) and c not in tried]

        def near(config: str) -> bool:
            limit = self._rules.again if config in portfolio else self._rules.hopeless
            return config in always or slowdowns.get(config, ABSENT) <= limit

        return [c for c in candidates if 0 < len(tried.get(c, ())) < repeat and near(c)]


STRATEGIES: dict[str, Callable[[Problem], Strategy]] = {"race": Race, "full": Full}
