"""Explain a shape's config: the path to it, its time, and the runners-up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from treegen.core.problem import UNTIMED
from treegen.core.spec import Config
from treegen.review.explain.completed_shape import CompletedShape, complete, independent
from treegen.review.explain.estimate import TimeEstimate, broken_constraints, estimate
from treegen.review.explain.feature_space import feature_space
from treegen.review.explain.kriging import FEWEST, NEAR
from treegen.review.explain.outside import Outside, outside
from treegen.review.explain.tree_path import TreePath, trace
from treegen.review.explain.tuned_module import TunedModule


@dataclass(frozen=True)
class Neighbour:
    """A measured scenario near the shape. Times are microseconds, None for a table of winners."""

    scenario: str
    distance: float  # doublings
    differs: tuple[tuple[str, int], ...]  # features with another value there, of those that imply the rest
    best: Config
    wins: bool  # whether the launched config is as fast as the best
    time: float | None  # of the launched config; None where it has none
    best_time: float | None
    failed: bool  # whether the launched config failed there or breaks a constraint


@dataclass(frozen=True)
class Explanation:
    """Everything about one shape."""

    tuned: TunedModule
    shape: CompletedShape
    path: TreePath
    broken: tuple[str, ...]  # constraints that the launched config breaks here; only a fallback may
    outside: tuple[Outside, ...]
    measured_scenario: str | None  # the one that is this shape
    estimate: TimeEstimate | None  # None for a table of winners, and where `no_time` says why
    no_time: str | None
    neighbours: tuple[Neighbour, ...]  # nearest first, at most `top`
    won: int  # in how many of the nearest `won_of` scenarios the launched config is the best
    won_of: int
    top: int  # how many runners-up to show


def explain(tuned: TunedModule, given: Mapping[str, int], top: int) -> Explanation:
    """Explain the shape of the given features. Raises InputError where they do not describe one."""
    problem = tuned.problem
    shape = complete(given, problem)
    path = trace(tuned.module.tree, shape.values, problem)
    space = feature_space(problem)
    at = space.at(shape.values)
    distances = space.distances(at)
    order = np.argsort(distances, kind="stable").tolist()
    same = (problem.features == [shape.values[name] for name in problem.names]).all(axis=1)
    measured_row = int(np.argmax(same)) if same.any() else None
    if measured_row is not None:  # before equally near ones, whose values below 1 differ
        order = [measured_row, *(row for row in order if row != measured_row)]
    time_estimate = None
    if tuned.knows_times:
        time_estimate = estimate(tuned, path.config, shape.values, space.points, at, measured_row)
    neighbours = [
        _neighbour(tuned, path.config, shape, row, distances[row]) for row in order[: max(top, NEAR)]
    ]
    return Explanation(
        tuned,
        shape,
        path,
        broken_constraints(path.config, shape.values, tuned),
        outside(shape.values, problem, float(distances.min()), space.usual()),
        None if measured_row is None else problem.scenarios[measured_row],
        time_estimate,
        None if time_estimate is not None else _why_no_time(tuned, path.config),
        tuple(neighbours[:top]),
        sum(neighbour.wins for neighbour in neighbours[:NEAR]),
        len(neighbours[:NEAR]),
        top,
    )


def _neighbour(
    tuned: TunedModule, config: Config, shape: CompletedShape, row: int, distance: float
) -> Neighbour:
    problem, column, knows_times = tuned.problem, tuned.column(config), tuned.knows_times
    there = ((name, int(problem.column(name)[row])) for name in independent(problem))
    cost = UNTIMED if column is None else int(problem.cost[row, column])
    best = column if column is not None and cost == 0 else int(np.argmin(problem.cost[row]))
    return Neighbour(
        problem.scenarios[row],
        float(distance),
        tuple((name, value) for name, value in there if value != shape.values[name]),
        problem.configs[best],
        cost == 0,
        float(tuned.times[row, column]) if knows_times and cost < UNTIMED else None,
        float(tuned.times[row, best]) if knows_times else None,
        cost > UNTIMED,
    )


def _why_no_time(tuned: TunedModule, config: Config) -> str:
    if not tuned.knows_times:
        return "the table holds only the winner of each scenario"
    column = tuned.column(config)
    if column is None:
        return "the table does not hold this config"
    timed = int(np.isfinite(tuned.times[:, column]).sum())
    if timed < FEWEST:
        return f"the table times this config in {timed} scenarios only"
    return "its 80% range would span a sixteenth to sixteen times the time, or more"
