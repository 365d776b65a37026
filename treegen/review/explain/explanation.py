"""Why a shape launches what it launches, how long that takes, and what else there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from treegen.core.spec import Config
from treegen.review.explain.estimate import Estimate, estimate
from treegen.review.explain.kriging import LEAST, NEAR
from treegen.review.explain.neighbours import Neighbour, neighbours
from treegen.review.explain.outside import Outside, outside
from treegen.review.explain.path import Path, trace
from treegen.review.explain.shape import Shape, complete
from treegen.review.explain.space import space_of
from treegen.review.explain.subject import Subject


@dataclass(frozen=True)
class Explanation:
    """estimate: None for a table of winners, and where `untimed` says why. won: in how many of the nearest
    `won_of` scenarios the launched config is the best one. top: of how many runners-up a reader is told."""

    subject: Subject
    shape: Shape
    path: Path
    outside: tuple[Outside, ...]
    exact: str | None
    estimate: Estimate | None
    untimed: str | None
    neighbours: tuple[Neighbour, ...]
    won: int
    won_of: int
    top: int


def explain(subject: Subject, given: Mapping[str, int], top: int) -> Explanation:
    """All there is to say of a shape. Raises InputError where the features do not describe one."""
    problem = subject.problem
    shape = complete(given, problem)
    path = trace(subject.module.tree, shape.values, problem)
    space = space_of(problem)
    at = space.at(shape.values)
    distances = space.distances(at)
    order = np.argsort(distances, kind="stable").tolist()
    found = outside(shape.values, problem, float(distances.min()), space.usual())
    same = (problem.features == [shape.values[name] for name in problem.names]).all(axis=1)
    exact = int(np.argmax(same)) if same.any() else None
    if exact is not None:  # before others as near, whose values below 1 differ
        order = [exact, *(row for row in order if row != exact)]
    time = None
    if subject.knows_times:
        time = estimate(subject, path.config, shape.values, space.points, at, exact)
    nearest = neighbours(subject, path.config, shape.values, distances, order[: max(top, NEAR)])
    return Explanation(
        subject,
        shape,
        path,
        found,
        None if exact is None else problem.scenarios[exact],
        time,
        None if time is not None else _untimed(subject, path.config),
        nearest[:top],
        sum(neighbour.wins for neighbour in nearest[:NEAR]),
        len(nearest[:NEAR]),
        top,
    )


def _untimed(subject: Subject, config: Config) -> str:
    if not subject.knows_times:
        return "the table holds only the winner of each scenario"
    column = subject.column(config)
    if column is None:
        return "the table does not hold this config"
    timed = int(np.isfinite(subject.times[:, column]).sum())
    if timed < LEAST:
        return f"the table times this config in {timed} scenarios only"
    return "its range would reach from a sixteenth to sixteen times the time, or farther"
