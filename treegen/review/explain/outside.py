"""Features in which a shape lies outside the tuned shapes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from treegen.core.problem import Problem

_FEW = 16  # a feature with so few values is a kind of shape, not a size ...
_EACH = 10  # ... if each value has so many scenarios on average


@dataclass(frozen=True)
class Beyond:
    """A value outside the measured range of its feature."""

    feature: str
    value: int
    least: int
    greatest: int


@dataclass(frozen=True)
class Between:
    """A value that was not measured, of a feature with few values; `below` and `above` were measured."""

    feature: str
    value: int
    below: int
    above: int


@dataclass(frozen=True)
class Far:
    """The nearest scenario is farther away than 99% of the scenarios are from their nearest other."""

    distance: float  # doublings
    usual: float  # doublings


Outside = Beyond | Between | Far


def outside(
    values: Mapping[str, int], problem: Problem, distance: float, usual: float | None
) -> tuple[Outside, ...]:
    """The reasons why a shape lies outside the tuned ones; none if it lies inside.

    distance: to the nearest measured scenario. usual: `FeatureSpace.usual()`.
    """
    reasons: list[Outside] = []
    for name in problem.names:
        measured = np.unique(problem.column(name))
        value, least, greatest = values[name], int(measured[0]), int(measured[-1])
        if not least <= value <= greatest:
            reasons.append(Beyond(name, value, least, greatest))
        elif value not in measured and len(measured) <= min(_FEW, len(problem.cost) // _EACH):
            above = int(np.searchsorted(measured, value))
            reasons.append(Between(name, value, int(measured[above - 1]), int(measured[above])))
    if usual is not None and distance > usual:
        reasons.append(Far(distance, usual))
    return tuple(reasons)
