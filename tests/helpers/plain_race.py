"""The race again, one cell at a time and without arrays, as what the fast one must decide."""

import math
from collections import Counter
from collections.abc import Sequence

from triton_tune.core.problem import SearchProblem, ShapeKey, Times
from triton_tune.search.neighbours import Distances
from triton_tune.search.race import ABSENT, RaceRules
from triton_tune.search.strategies import REPEATS, Round, visits


class PlainRace:
    """Plans what `Race` plans."""

    def __init__(self, problem: SearchProblem, rules: RaceRules) -> None:
        self.problem, self.rules = problem, rules
        self._distances = Distances(problem)

    def next_round(self, times: Times, spent: float) -> Round | None:
        problem, rules = self.problem, self.rules
        scenarios = [s for s in problem.scenarios if problem.candidates[s]]
        if spent < rules.explore_share:
            first, second = self._sweeps(scenarios)
            for name, some, hopeless_too in (("families", first, True), ("shapes", second, False)):
                tasks = visits(problem, times, {s: self._untried(times, s, hopeless_too) for s in some}, name)
                if tasks:
                    return Round(f"explore {name}", tasks, rules.explore_share)
        swept = [s for s in scenarios if times.measured(s) and not self._untried(times, s)]
        portfolio = self._portfolio(times, scenarios, swept)
        for repeat in range(1, REPEATS + 1):
            due = {s: self._due(times, s, portfolio, repeat) for s in scenarios}
            tasks = visits(problem, times, due, f"portfolio/{repeat}/{len(swept)}")
            if tasks:
                return Round(f"portfolio of {len(portfolio)}, repeat {repeat}", tasks)
        left = {s: self._untried(times, s, not times.slowdowns(s)) for s in scenarios}
        unsure = [s for s in scenarios if left[s]]
        chosen = self._farthest(unsure, rules.refine, [s for s in swept if not left[s]])
        tasks = visits(problem, times, {s: left[s] for s in chosen}, f"refine/{len(swept)}")
        return Round("refine", tasks) if tasks else None

    def _farthest(self, scenarios: Sequence[str], count: int, known: Sequence[str] = ()) -> list[str]:
        between = self._distances.between
        chosen = [] if known else self._distances.farthest_first(scenarios, 1)[:count]
        while len(chosen) < min(count, len(scenarios)):
            left = [s for s in scenarios if s not in chosen]
            chosen.append(max(left, key=lambda s: min(between(s, other) for other in (*known, *chosen))))
        return chosen

    def _sweeps(self, scenarios: Sequence[str]) -> tuple[list[str], list[str]]:
        problem, (main, other, rest) = self.problem, self.rules.explore
        shapes: dict[ShapeKey, list[str]] = {}
        for scenario in scenarios:
            shapes.setdefault(problem.shape(scenario), []).append(scenario)
        families = Counter(map(problem.family, scenarios)).most_common(1)
        first: list[str] = []
        second: list[str] = []
        begun: set[ShapeKey] = set()
        for some in sorted(shapes.values(), key=len, reverse=True):
            family = problem.family(some[0])
            if family in begun:
                second += self._farthest(some, rest)
            else:
                first += self._farthest(some, main if family == families[0][0] else other)
            begun.add(family)
        return first, second

    def _untried(self, times: Times, scenario: str, hopeless_too: bool = False) -> list[str]:
        tried = times.measured(scenario)
        untried = [config for config in self.problem.candidates[scenario] if config not in tried]
        return [c for c in untried if hopeless_too or not self._hopeless(times, scenario, c)]

    def _hopeless(self, times: Times, scenario: str, config: str) -> bool:
        problem, enough = self.problem, self.rules.neighbours
        alike = [s for s in problem.scenarios if problem.family(s) == problem.family(scenario)]
        tried = [s for s in alike if s != scenario and problem.candidates[s] and config in times.measured(s)]
        nearest = sorted(tried, key=lambda s: self._distances.between(scenario, s))[:enough]
        slow = [times.slowdowns(s).get(config, ABSENT) > self.rules.hopeless for s in nearest]
        return len(slow) == enough and all(slow)

    def _portfolio(self, times: Times, scenarios: Sequence[str], swept: Sequence[str]) -> set[str]:
        problem, rules = self.problem, self.rules
        weights = dict.fromkeys(swept, 0)
        for scenario in scenarios if swept else ():
            weights[min(swept, key=lambda s: self._distances.between(scenario, s))] += 1

        def lost(configs: Sequence[str]) -> float:
            """What the best of these configs loses, in logarithms."""
            found = 0.0
            for scenario in swept:
                row = times.slowdowns(scenario)
                best = min((row.get(config, ABSENT) for config in configs), default=ABSENT)
                found += weights[scenario] * math.log(min(ABSENT, best))
            return found

        done = Counter(config for scenario in scenarios for config in times.measured(scenario))
        chosen = [config for config, possible in problem.configs.items() if done[config] == possible]
        enough = math.log1p(rules.portfolio_loss) * sum(weights.values())
        while len(chosen) < rules.portfolio_most and (before := lost(chosen)) > enough:
            best = min(problem.configs, key=lambda config: lost([*chosen, config]))
            if lost([*chosen, best]) >= before:
                break
            chosen.append(best)
        for variant in sorted({problem.variants[config] for config in problem.configs}):
            of_variant = [config for config in problem.configs if problem.variants[config] == variant]
            if not set(of_variant) & set(chosen):
                chosen.append(min(of_variant, key=lambda config: lost([config])))
        return set(chosen)

    def _due(self, times: Times, scenario: str, portfolio: set[str], repeat: int) -> list[str]:
        tried, slowdowns = times.measured(scenario), times.slowdowns(scenario)
        always = self.problem.always.get(scenario, ())
        found = []
        for config in self.problem.candidates[scenario]:
            limit = self.rules.again if config in portfolio else self.rules.hopeless
            if repeat == 1:
                wanted = config not in tried and (config in portfolio or config in always)
            else:
                near = config in always or slowdowns.get(config, ABSENT) <= limit
                wanted = 0 < len(tried.get(config, ())) < repeat and near
            if wanted:
                found.append(config)
        return found
