"""Search strategies: from the cells measured so far to the next round of visits.

A strategy holds no state. After a kill, in another run or in a replay, it goes on from the table alone.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from triton_tune.core.problem import PlannedVisit, SearchProblem, ShapeKey, Times
from triton_tune.search.neighbours import Distances
from triton_tune.search.portfolio import ABSENT, cover
from tuning_table.table import Cell

REPEATS = 2
SWEPT_AGAIN = 1.15  # a sweep times configs up to this slowdown again


@dataclass(frozen=True)
class Round:
    """Visits that are compiled together and then measured in this order."""

    name: str
    tasks: tuple[PlannedVisit, ...]
    share: float = 1.0  # the share of the budget by which the round ends


class Strategy(Protocol):
    """Chooses the next visits."""

    def next_round(self, times: Times, spent: float) -> Round | None:
        """The next round; None if nothing is left to measure. spent: the used share of the budget."""


def visits(
    problem: SearchProblem, times: Times, configs_of: Mapping[str, Iterable[str]], shuffle: str
) -> tuple[PlannedVisit, ...]:
    """A visit for each scenario with configs to measure, in an order that the seed `shuffle` gives."""
    tasks = [
        PlannedVisit(scenario, times.next_repeat(scenario), tuple(configs))
        for scenario, configs in configs_of.items()
        if configs
    ]
    random.Random(f"{problem.seed}/{shuffle}").shuffle(tasks)
    return tuple(tasks)


class Full:
    """Times every candidate in every scenario, and those near the best a second time."""

    def __init__(self, problem: SearchProblem) -> None:
        self._problem = problem

    def next_round(self, times: Times, spent: float) -> Round | None:
        problem = self._problem
        for repeat in range(1, REPEATS + 1):
            configs_of: dict[str, list[str]] = {}
            for scenario, configs in problem.candidates.items():
                tried, slowdowns = times.measured(scenario), times.slowdowns(scenario)
                configs_of[scenario] = [
                    config
                    for config in configs
                    if len(tried.get(config, ())) < repeat
                    and (repeat == 1 or slowdowns.get(config, ABSENT) <= SWEPT_AGAIN)
                ]
            tasks = visits(problem, times, configs_of, f"full/{repeat}")
            if tasks:
                return Round(f"sweep, repeat {repeat}", tasks)
        return None


@dataclass(frozen=True)
class RaceRules:
    """The limits of a race's exploration.

    A config is hopeless in a scenario if it was slow in all of the nearest scenarios that tried it.
    """

    # The number of scenarios to sweep first. The entries are for the most frequent shape of the most frequent
    # family, for that of every other family, and for every other shape (there without hopeless configs).
    explore: tuple[int, int, int] = (24, 8, 4)
    explore_share: float = 0.6  # exploring ends at this share of the budget
    hopeless: float = 1.15  # a config is slow above this slowdown
    neighbours: int = 5  # the number of nearest scenarios
    portfolio_loss: float = 0.002  # the portfolio is large enough when it loses at most this,
    portfolio_most: int = 32  # or has so many configs
    again: float = 1.3  # a config of the portfolio is timed again up to this slowdown
    refine: int = 16  # the number of scenarios to sweep in each further round


@dataclass(frozen=True)
class _Seen:
    """The times so far, by scenario and config."""

    tried: Mapping[str, Mapping[str, Sequence[Cell]]]
    slowdowns: Mapping[str, Mapping[str, float]]  # of configs that never failed


class Race:
    """Sweeps a few scenarios that differ, chooses a portfolio of configs there, and times it everywhere.

    With the time that is left, it sweeps the scenarios farthest from the swept ones, and the portfolio grows.
    It ends early if no config is left that might win.
    """

    def __init__(self, problem: SearchProblem, rules: RaceRules | None = None) -> None:
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
                configs_of = {s: self._untried(seen, s, hopeless_too=hopeless_too) for s in scenarios}
                tasks = visits(problem, times, configs_of, name)
                if tasks:
                    return Round(f"explore {name}", tasks, rules.explore_share)
        swept = [s for s in self._scenarios if seen.tried[s] and not self._untried(seen, s)]
        portfolio = set(self._portfolio(seen, swept))
        for repeat in range(1, REPEATS + 1):
            configs_of = {s: self._due(seen, s, portfolio, repeat) for s in self._scenarios}
            tasks = visits(problem, times, configs_of, f"portfolio/{repeat}/{len(swept)}")
            if tasks:
                return Round(f"portfolio of {len(portfolio)}, repeat {repeat}", tasks)
        # Where no config has a time yet, hopeless configs are tried, too.
        left = {s: self._untried(seen, s, hopeless_too=not seen.slowdowns[s]) for s in self._scenarios}
        unsure = [s for s, configs in left.items() if configs]
        known = [s for s in swept if not left[s]]
        configs_of = {s: left[s] for s in self._distances.farthest_first(unsure, rules.refine, known)}
        tasks = visits(problem, times, configs_of, f"refine/{len(swept)}")
        return Round("refine", tasks) if tasks else None

    def _portfolio(self, seen: _Seen, swept: Sequence[str]) -> tuple[str, ...]:
        """The configs to time everywhere: a cover of the swept scenarios, and each variant's best config."""
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
        """The scenarios to sweep first: those with all candidates, and those without hopeless configs."""
        problem = self._problem
        shapes: dict[ShapeKey, list[str]] = {}
        for scenario in self._scenarios:
            shapes.setdefault(problem.shape(scenario), []).append(scenario)
        families = Counter(problem.family(scenario) for scenario in self._scenarios)
        main, other, rest = self._rules.explore
        first: list[str] = []
        second: list[str] = []
        begun: set[ShapeKey] = set()
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
        """Return whether the config was slow or failed wherever this family's nearest scenarios tried it."""
        slow_neighbours = 0
        for other in self._alike[scenario]:
            if config not in seen.tried[other]:
                continue
            if seen.slowdowns[other].get(config, ABSENT) <= self._rules.hopeless:
                return False
            slow_neighbours += 1
            if slow_neighbours == self._rules.neighbours:
                return True
        return False

    def _weights(self, swept: Sequence[str]) -> dict[str, float]:
        """For each swept scenario the number of scenarios to which it is the nearest."""
        weights = dict.fromkeys(swept, 0.0)
        for scenario in self._scenarios if swept else ():
            weights[self._distances.nearest(scenario, swept, 1)[0]] += 1.0
        return weights

    def _everywhere(self, seen: _Seen) -> tuple[str, ...]:
        """The portfolio so far: the configs that were timed wherever they may be measured."""
        possible = self._problem.configs
        done = Counter(c for row in seen.tried.values() for c in row)
        return tuple(c for c in possible if done[c] == possible[c])

    def _due(self, seen: _Seen, scenario: str, portfolio: set[str], repeat: int) -> list[str]:
        """The configs to time for this repeat: the portfolio, and others that may be the best."""
        tried, slowdowns = seen.tried[scenario], seen.slowdowns[scenario]
        candidates = self._problem.candidates[scenario]
        always = self._problem.always.get(scenario, ())
        if repeat == 1:
            return [c for c in candidates if (c in portfolio or c in always) and c not in tried]

        def near(config: str) -> bool:
            limit = self._rules.again if config in portfolio else self._rules.hopeless
            return config in always or slowdowns.get(config, ABSENT) <= limit

        return [c for c in candidates if 0 < len(tried.get(c, ())) < repeat and near(c)]


STRATEGIES: dict[str, Callable[[SearchProblem], Strategy]] = {"race": Race, "full": Full}
