"""Distances between scenarios: by the logarithms of their features."""

import heapq
import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from triton_tune.core.problem import Likeness, SearchProblem

Floats = npt.NDArray[np.float64]


class Distances:
    """Distances between all scenarios of a problem."""

    def __init__(self, problem: SearchProblem) -> None:
        self._points = points = np.array([_point(row, problem.likeness) for row in problem.features.values()])
        self._between = np.zeros((len(points), len(points)))
        for row, point in zip(self._between, points, strict=True):
            row[:] = np.linalg.norm(points - point, axis=1)
        self._index = {name: index for index, name in enumerate(problem.features)}

    def matrix(self, scenarios: Sequence[str], others: Sequence[str]) -> Floats:
        return self._between[np.ix_(self._numbers(scenarios), self._numbers(others))]

    def representatives(self, scenarios: Sequence[str], count: int, preset: Sequence[str] = ()) -> list[str]:
        """Choose `count` scenarios so that each of `scenarios` is near one of them or of `preset`.

        If `preset` is empty, the first is the scenario nearest to the mean. Each further one is the scenario
        that most reduces the distances to the nearest chosen one, summed over all scenarios: a greedy
        k-median. A candidate's saving can only shrink as others are chosen, so few are computed again
        (Minoux, Accelerated greedy algorithms, 1978).
        """
        without = set(preset)
        left = [scenario for scenario in scenarios if scenario not in without]
        chosen: list[str] = []
        if left and not preset and count:
            points = self._points[self._numbers(left)]
            chosen.append(left.pop(int(np.linalg.norm(points - points.mean(axis=0), axis=1).argmin())))
        between = self.matrix(left, left)
        gaps = self.matrix([*preset, *chosen], left).min(axis=0, initial=math.inf)

        def minus_saving(place: int) -> tuple[float, int]:
            return float(np.minimum(between[place] - gaps, 0.0).sum()), place

        queue = [minus_saving(place) for place in range(len(left))]
        heapq.heapify(queue)
        while queue and len(chosen) < count:
            first = minus_saving(queue[0][1])
            heapq.heapreplace(queue, first)
            if queue[0] == first:
                heapq.heappop(queue)
                chosen.append(left[first[1]])
                np.minimum(gaps, between[first[1]], out=gaps)
        return chosen

    def _numbers(self, scenarios: Sequence[str]) -> npt.NDArray[np.intp]:
        return np.array([self._index[scenario] for scenario in scenarios], dtype=np.intp)


def _point(features: Mapping[str, int], likeness: Likeness) -> tuple[float, ...]:
    derived = likeness.derive(features)
    weights = dict.fromkeys(derived, 1.0) if likeness.weights is None else likeness.weights
    return tuple(weight * math.log2(max(1, derived.get(name, 1))) for name, weight in weights.items())
