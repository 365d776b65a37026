"""Scenarios that two tables have in common."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem

Rows = npt.NDArray[np.int64]


def common_rows(problem: Problem, other: Problem) -> tuple[Rows, Rows]:
    """The rows in each problem of the scenarios with the same id and features in both, in the same order."""
    shared = [name for name in problem.names if name in other.names]
    if not shared:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    places = {scenario: row for row, scenario in enumerate(other.scenarios)}
    pairs = [(row, places[s]) for row, s in enumerate(problem.scenarios) if s in places]
    here, there = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    same = np.ones(len(pairs), dtype=bool)
    for name in shared:
        same &= problem.column(name)[here] == other.column(name)[there]
    return here[same], there[same]
