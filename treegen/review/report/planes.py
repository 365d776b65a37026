"""Which two features to draw scenarios over.

What a tree launches depends on many features; a picture has two. Of all pairs of raw features that one is
drawn in which neighbours most often launch the same config: there the areas of the picture are the tree's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem
from treegen.core.spec import Regime
from treegen.crossval.choices import Decisions
from treegen.review.report.places import places

EVERYTHING, OTHERS = "all shapes", "other shapes"
_PLANE = 8  # a feature with fewer values makes stripes, no area
_LOOKED_AT = 2000
_FINE = 1000  # steps an octave: distances are integers, so that all machines agree which are equal

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Plane:
    """Scenarios to draw over two features. rows: [scenarios drawn] of the problem."""

    title: str
    x: str
    y: str
    rows: Rows


def planes(problem: Problem, launched: Decisions) -> tuple[Plane, ...]:
    """One plane a regime, of the first feature that the spec names regimes of, where each has the features to
    fill one; else one for all scenarios. None where fewer than two features vary."""
    parts = [(title, rows) for title, rows in _regimes(problem) if len(rows)]
    if not all(len(_varying(problem, rows, _PLANE)) >= 2 for _, rows in parts):
        parts = [(EVERYTHING, np.arange(len(problem.cost)))]
    return tuple(
        Plane(title, *axes, rows) for title, rows in parts if (axes := _axes(problem, launched, rows))
    )


def _regimes(problem: Problem) -> Iterator[tuple[str, Rows]]:
    """The scenarios of each regime of the first feature that has some, then those in none of them."""
    left = np.ones(len(problem.cost), dtype=bool)
    known = {
        name: regime for name, regime in problem.kernel.regimes.items() if regime.feature in problem.names
    }
    first = next((regime.feature for regime in known.values()), None)
    for name, regime in known.items():
        if regime.feature == first:
            inside = _inside(problem.column(regime.feature), regime)
            left &= ~inside
            yield name, np.flatnonzero(inside)
    yield EVERYTHING if left.all() else OTHERS, np.flatnonzero(left)


def _inside(values: npt.NDArray[np.int64], regime: Regime) -> npt.NDArray[np.bool_]:
    inside = np.ones(len(values), dtype=bool)
    if regime.least is not None:
        inside &= values >= regime.least
    if regime.greatest is not None:
        inside &= values <= regime.greatest
    return inside


def _varying(problem: Problem, rows: Rows, least: int) -> list[str]:
    """The raw features, in the spec's order, with so many values in these scenarios."""
    known = (name for name in problem.kernel.features if name in problem.names)
    return [name for name in known if len(np.unique(problem.column(name)[rows])) >= least]


def _axes(problem: Problem, launched: Decisions, rows: Rows) -> tuple[str, str] | None:
    """The pair of features, earlier ones of the spec first, that tells most about what is launched."""
    names = _varying(problem, rows, _PLANE)
    if len(names) < 2:
        names = _varying(problem, rows, 2)
    if len(names) < 2:
        return None
    looked_at = rows[:: 1 + (len(rows) - 1) // _LOOKED_AT]
    number = {config: i for i, config in enumerate(dict.fromkeys(launched))}
    launch = np.array([number[launched[row]] for row in looked_at])
    at = {name: np.rint(places(problem.column(name)[looked_at]) * _FINE).astype(np.int64) for name in names}
    return max(combinations(names, 2), key=lambda pair: _alike([at[name] for name in pair], launch))


def _alike(at: Sequence[npt.NDArray[np.int64]], launch: Rows) -> int:
    """How many points launch what their nearest neighbour launches; of equally near ones the first counts."""
    same = 0
    for point in range(len(launch)):
        distance = sum((axis - axis[point]) ** 2 for axis in at)
        distance[point] = np.iinfo(np.int64).max
        same += int(launch[int(distance.argmin())] == launch[point])
    return same
