"""How far shapes are from each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem

_USUAL = 0.99
_SAMPLE = 2048  # so many scenarios tell what is usual


@dataclass(frozen=True)
class Space:
    """Raw features and those that trees may ask about, on the scale of doublings.

    points: [scenarios, names] float64, log2 of the values (of 1 where they are lower).
    """

    names: tuple[str, ...]
    points: npt.NDArray[np.float64]

    def at(self, values: Mapping[str, int]) -> npt.NDArray[np.float64]:
        """[names] the point of a shape."""
        return _logarithms([values[name] for name in self.names])

    def distances(self, point: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """[scenarios] the Euclidean distance of each, in doublings; whole millionths, so that ties are
        ties."""
        return np.asarray(np.sqrt(((self.points - point) ** 2).sum(axis=1)).round(6))

    def usual(self) -> float | None:
        """The distance within which 99% of the scenarios have another shape; None if there is none."""
        points = np.unique(self.points, axis=0)
        if len(points) < 2:
            return None
        some = np.unique(np.linspace(0, len(points) - 1, min(len(points), _SAMPLE)).astype(np.int64))
        nearest = np.sort([_to_nearest_other(points, row) for row in some])
        return float(nearest[int(np.ceil(_USUAL * len(nearest))) - 1])


def space_of(problem: Problem, names: Iterable[str] | None = None) -> Space:
    """The space of a problem's scenarios. names: only these features (default: all that matter)."""
    if names is None:
        names = [n for n in problem.names if n in problem.kernel.features or n in problem.split_on]
    names = tuple(names)
    return Space(names, _logarithms([problem.column(name) for name in names]).T)


def _logarithms(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return np.log2(np.maximum(values, 1).astype(np.float64))


def _to_nearest_other(points: npt.NDArray[np.float64], row: int) -> float:
    squares = ((points - points[row]) ** 2).sum(axis=1)
    squares[row] = np.inf
    return float(np.sqrt(squares.min()).round(6))
