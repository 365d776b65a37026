"""Distances between scenarios: by the logarithms of their features."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from triton_tune.core.problem import Likeness, SearchProblem

Floats = npt.NDArray[np.float64]


class Distances:
    """Distances between all scenarios of a problem."""

    def __init__(self, problem: SearchProblem) -> None:
        self._points = np.array([_point(row, problem.likeness) for row in problem.features.values()])
        self._index = {name: index for index, name in enumerate(problem.features)}
        self._rows: dict[str, Floats] = {}

    def matrix(self, scenarios: Sequence[str], others: Sequence[str]) -> Floats:
        columns = self._columns(others)
        found = np.empty((len(scenarios), len(others)))
        for row, scenario in enumerate(scenarios):
            found[row] = self._row(scenario)[columns]
        return found

    def farthest_first(self, scenarios: Sequence[str], count: int, known: Sequence[str] = ()) -> list[str]:
        """Choose `count` scenarios, each the farthest from those before it and from `known`.

        This is the greedy k-center of Gonzalez, Theoretical Computer Science 38, 1985. If `known` is empty,
        the first scenario is the one nearest to the mean.
        """
        without = set(known)
        left = [scenario for scenario in scenarios if scenario not in without]
        columns = self._columns(left)
        gaps = np.full(len(left), math.inf)
        for scenario in known:
            np.minimum(gaps, self._row(scenario)[columns], out=gaps)
        chosen: list[str] = []
        for _ in range(min(count, len(left))):
            farthest = int(gaps.argmax()) if known or chosen else self._middle(left)
            chosen.append(left[farthest])
            np.minimum(gaps, self._row(left[farthest])[columns], out=gaps)
            gaps[farthest] = -math.inf
        return chosen

    def _middle(self, scenarios: Sequence[str]) -> int:
        points = self._points[self._columns(scenarios)]
        return int(np.linalg.norm(points - points.mean(axis=0), axis=1).argmin())

    def _row(self, scenario: str) -> Floats:
        if scenario not in self._rows:
            point = self._points[self._index[scenario]]
            self._rows[scenario] = np.linalg.norm(self._points - point, axis=1)
        return self._rows[scenario]

    def _columns(self, scenarios: Sequence[str]) -> npt.NDArray[np.intp]:
        return np.array([self._index[scenario] for scenario in scenarios], dtype=np.intp)


def _point(features: Mapping[str, int], likeness: Likeness) -> tuple[float, ...]:
    known = likeness.derive(features)
    weights = dict.fromkeys(known, 1.0) if likeness.weights is None else likeness.weights
    return tuple(weight * math.log2(max(1, known.get(name, 1))) for name, weight in weights.items())
