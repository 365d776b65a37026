"""Choose the two features of a picture of scenarios.

A tree's choice depends on many features, and a picture has two. The chosen pair of raw features is the one in
which nearest neighbours most often launch the same config. There, areas of one colour show the tree's leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem
from treegen.core.tree import within
from treegen.crossval.choices import Decisions
from treegen.review.printing import EVERYTHING
from treegen.review.report.log_axis import positions

OTHERS = "other shapes"
_FEWEST = 8  # values: a feature with fewer makes stripes, no area
_SAMPLE = 2000  # scenarios that are compared
_FINE = 1000  # steps an octave: distances are integers, so that all machines agree which are equal

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class FeaturePlane:
    """Scenarios to draw over two features. rows: [scenarios drawn] of the problem."""

    title: str
    x: str
    y: str
    rows: Rows


def planes(problem: Problem, launched: Decisions) -> tuple[FeaturePlane, ...]:
    """One plane for each regime of the first feature that the spec names regimes of.

    One plane for all scenarios where a regime has too few features for its own; none where fewer than two
    features vary.
    """
    parts = [(title, rows) for title, rows in _regimes(problem) if len(rows)]
    if not all(len(_varying(problem, rows, _FEWEST)) >= 2 for _, rows in parts):
        parts = [(EVERYTHING, np.arange(len(problem.cost)))]
    return tuple(
        FeaturePlane(title, *axes, rows) for title, rows in parts if (axes := _axes(problem, launched, rows))
    )


def _regimes(problem: Problem) -> Iterator[tuple[str, Rows]]:
    """The scenarios of each regime of the first feature that has some, then those in none of them."""
    rest = np.ones(len(problem.cost), dtype=bool)
    regimes = {n: regime for n, regime in problem.kernel.regimes.items() if regime.feature in problem.names}
    first = next((regime.feature for regime in regimes.values()), None)
    for name, regime in regimes.items():
        if regime.feature == first:
            values = problem.column(regime.feature).tolist()
            inside = np.array([within(value, regime.least, regime.greatest) for value in values])
            rest &= ~inside
            yield name, np.flatnonzero(inside)
    yield EVERYTHING if rest.all() else OTHERS, np.flatnonzero(rest)


def _varying(problem: Problem, rows: Rows, least: int) -> list[str]:
    """The raw features, in the spec's order, with at least so many values in these scenarios."""
    words = problem.kernel.values  # make no axis
    known = [name for name in problem.kernel.features if name in problem.names and name not in words]
    return [name for name in known if len(np.unique(problem.column(name)[rows])) >= least]


def _axes(problem: Problem, launched: Decisions, rows: Rows) -> tuple[str, str] | None:
    """The pair of features in which neighbours most often agree; of equals the spec's first."""
    names = _varying(problem, rows, _FEWEST)
    if len(names) < 2:
        names = _varying(problem, rows, 2)
    if len(names) < 2:
        return None
    sample = rows[:: 1 + (len(rows) - 1) // _SAMPLE]
    number = {config: i for i, config in enumerate(dict.fromkeys(launched))}
    launch = np.array([number[launched[row]] for row in sample])
    at = {name: np.rint(positions(problem.column(name)[sample]) * _FINE).astype(np.int64) for name in names}
    return max(combinations(names, 2), key=lambda pair: _agreements([at[name] for name in pair], launch))


def _agreements(at: Sequence[npt.NDArray[np.int64]], launch: Rows) -> int:
    """Count the points that launch the config of their nearest neighbour (the first, if several tie)."""
    same = 0
    for point in range(len(launch)):
        distance = sum((axis - axis[point]) ** 2 for axis in at)
        distance[point] = np.iinfo(np.int64).max
        same += int(launch[int(distance.argmin())] == launch[point])
    return same
