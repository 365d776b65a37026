"""The measured scenarios nearest to a shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from treegen.core.problem import UNMEASURED
from treegen.core.spec import Config
from treegen.review.explain.shape import independent
from treegen.review.explain.subject import Subject


@dataclass(frozen=True)
class Neighbour:
    """A scenario. distance: in doublings. differs: (feature, value there), of those that imply the others.

    best: the fastest config there; wins: whether the launched one is as fast. Of a table of winners no times
    are known. time, best_time: of the launched config and of the best, in microseconds; time is None where
    the launched config has none, and failed tells whether it failed there or breaks a constraint.
    """

    scenario: str
    distance: float
    differs: tuple[tuple[str, int], ...]
    best: Config
    wins: bool
    time: float | None
    best_time: float | None
    failed: bool


def neighbours(
    subject: Subject, config: Config, values: Mapping[str, int], distances: np.ndarray, order: Sequence[int]
) -> tuple[Neighbour, ...]:
    """The scenarios in `order`. distances: [scenarios] to the shape with these values."""
    problem = subject.problem
    column = subject.column(config)
    compared = independent(problem)
    known = subject.knows_times

    def neighbour(row: int) -> Neighbour:
        there = {name: int(problem.column(name)[row]) for name in compared}
        cost = int(problem.cost[row, column]) if column is not None else UNMEASURED
        best = column if column is not None and cost == 0 else int(np.argmin(problem.cost[row]))
        has_time = known and cost < UNMEASURED
        return Neighbour(
            problem.scenarios[row],
            float(distances[row]),
            tuple((name, value) for name, value in there.items() if value != values[name]),
            problem.configs[best],
            cost == 0,
            float(subject.times[row, column]) if has_time else None,
            float(subject.times[row, best]) if known else None,
            cost > UNMEASURED,
        )

    return tuple(neighbour(row) for row in order)
