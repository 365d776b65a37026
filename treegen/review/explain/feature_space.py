"""Distances between shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem

_USUAL = 0.99
_APART = 16.0  # doublings between two words
_SAMPLE = 2048  # scenarios whose nearest others are looked up

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FeatureSpace:
    """Scenarios as points whose coordinates are features, in doublings.

    points: [scenarios, names] float64, log2 of the values (of 1 where they are lower). Values that stand for
    words lie so far apart that shapes with the same words are nearer.
    """

    names: tuple[str, ...]
    points: Floats
    kinds: Mapping[str, list[int]]  # the integers that stand for words, in ascending order, by feature

    def at(self, values: Mapping[str, int]) -> Floats:
        """[names] the point of a shape."""
        return np.array([_coordinate(values[name], self.kinds.get(name)) for name in self.names])

    def distances(self, point: Floats) -> Floats:
        """[scenarios] Euclidean distance to each in doublings, in steps of 10^-6 so that ties are exact."""
        return np.asarray(np.sqrt(((self.points - point) ** 2).sum(axis=1)).round(6))

    def usual(self) -> float | None:
        """The distance within which 99% of the scenarios have another shape; None if there is only one."""
        points = np.unique(self.points, axis=0)
        if len(points) < 2:
            return None
        rows = np.unique(np.linspace(0, len(points) - 1, min(len(points), _SAMPLE)).astype(np.int64))
        nearest = np.sort([_to_nearest_other(points, row) for row in rows])
        return float(nearest[int(np.ceil(_USUAL * len(nearest))) - 1])


def feature_space(problem: Problem, names: Iterable[str] | None = None) -> FeatureSpace:
    """The space of a problem's scenarios over some features; by default raw ones and those in `split_on`."""
    if names is None:
        names = [n for n in problem.names if n in problem.kernel.features or n in problem.split_on]
    names, kinds = tuple(names), {name: sorted(words) for name, words in problem.kernel.values.items()}
    points = np.stack([_coordinate(problem.column(name), kinds.get(name)) for name in names], axis=1)
    return FeatureSpace(names, points, kinds)


def _coordinate(values: npt.ArrayLike, kind: list[int] | None) -> Floats:
    if kind is not None:
        return np.asarray(_APART * np.searchsorted(kind, values))
    return np.log2(np.maximum(values, 1).astype(np.float64))


def _to_nearest_other(points: Floats, row: int) -> float:
    squares = ((points - points[row]) ** 2).sum(axis=1)
    squares[row] = np.inf
    return float(np.sqrt(squares.min()).round(6))
