"""Distances between scenarios: by the logarithms of their features."""

import math
from collections.abc import Mapping, Sequence

from triton_tune.core.problem import Likeness, SearchProblem


class Distances:
    """Distances between all scenarios of a problem."""

    def __init__(self, problem: SearchProblem) -> None:
        self._points = {
            name: _point(features, problem.likeness) for name, features in problem.features.items()
        }
        self._known: dict[tuple[str, str], float] = {}

    def between(self, one: str, other: str) -> float:
        key = (one, other) if one < other else (other, one)
        if key not in self._known:
            self._known[key] = math.dist(self._points[one], self._points[other])
        return self._known[key]

    def nearest(self, scenario: str, among: Sequence[str], count: int) -> list[str]:
        """The `count` nearest of `among`, nearest first; equally near ones in their order."""
        return sorted(among, key=lambda other: self.between(scenario, other))[:count]

    def farthest_first(self, scenarios: Sequence[str], count: int, known: Sequence[str] = ()) -> list[str]:
        """Choose `count` scenarios, each the farthest from those before it and from `known`.

        This is the greedy k-center of Gonzalez, Theoretical Computer Science 38, 1985. If `known` is empty,
        the first scenario is the one nearest to the mean.
        """
        left = [scenario for scenario in scenarios if scenario not in set(known)]
        chosen: list[str] = []
        if left and not known:
            middle = [
                sum(column) / len(left) for column in zip(*map(self._points.__getitem__, left), strict=True)
            ]
            chosen = [min(left, key=lambda scenario: math.dist(self._points[scenario], middle))]
        gaps = {
            scenario: min((self.between(scenario, other) for other in (*known, *chosen)), default=math.inf)
            for scenario in left
        }
        for scenario in chosen:
            del gaps[scenario]
        while gaps and len(chosen) < count:
            farthest = max(gaps, key=gaps.__getitem__)
            chosen.append(farthest)
            del gaps[farthest]
            for scenario in gaps:
                gaps[scenario] = min(gaps[scenario], self.between(scenario, farthest))
        return chosen[:count]


def _point(features: Mapping[str, int], likeness: Likeness) -> tuple[float, ...]:
    known = likeness.derive(features)
    weights = dict.fromkeys(known, 1.0) if likeness.weights is None else likeness.weights
    return tuple(weight * math.log2(max(1, known.get(name, 1))) for name, weight in weights.items())
