"""How a loss falls with the number of scenarios, and where that would lead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

HORIZON = 100
"""A law is not followed beyond so many times the scenarios that it was fitted to."""


class Reach(StrEnum):
    """What an extrapolation says about a target."""

    THERE = "there already"
    MORE = "more scenarios"
    NEVER = "not by more scenarios alone"
    UNTIMED_PENALTY = "too few points"


@dataclass(frozen=True)
class PowerLaw:
    """loss = scale * n ** -exponent."""

    scale: float
    exponent: float

    def at(self, n: float) -> float:
        return self.scale * math.pow(n, -self.exponent)


@dataclass(frozen=True)
class Extrapolation:
    """scenarios: how many would be needed, for Reach.MORE."""

    reach: Reach
    scenarios: int | None
    law: PowerLaw | None


def fit_law(points: Sequence[tuple[float, float]]) -> PowerLaw | None:
    """Least squares on both logarithms, over the points (n, loss) that have one.

    None where fewer than two different n are left.
    """
    logs = [(math.log(n), math.log(loss)) for n, loss in points if loss > 0]
    if len({x for x, _ in logs}) < 2:
        return None
    mean_x = math.fsum(x for x, _ in logs) / len(logs)
    mean_y = math.fsum(y for _, y in logs) / len(logs)
    spread = math.fsum((x - mean_x) ** 2 for x, _ in logs)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in logs) / spread
    return PowerLaw(math.exp(mean_y - slope * mean_x), -slope)


def extrapolate(points: Sequence[tuple[float, float]], target: float) -> Extrapolation:
    """At about how many n the loss would be `target`, by the law through the points, ascending by n.

    It is an extrapolation: it knows nothing of noise, nor of what the features cannot tell.
    """
    law = fit_law(points)
    last, loss = points[-1]
    if loss <= target:
        return Extrapolation(Reach.THERE, None, law)
    if law is None:
        return Extrapolation(Reach.UNTIMED_PENALTY, None, None)
    if law.at(HORIZON * last) > target:
        return Extrapolation(Reach.NEVER, None, law)
    needed = math.exp(math.log(law.scale / target) / law.exponent)
    return Extrapolation(Reach.MORE, math.ceil(max(needed, last)), law)
