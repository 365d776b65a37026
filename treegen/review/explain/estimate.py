"""How long the launched config takes at a shape, and how others compare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from treegen.core import expr
from treegen.core.problem import Problem, holds
from treegen.core.spec import Config
from treegen.review.explain.kriging import NEAR, Floats, Forecast, forecast
from treegen.review.explain.subject import Subject


@dataclass(frozen=True)
class Figure:
    """A time or a ratio, with the ends of its range.

    measured: it was; the range is then that of the repeats. Else it is predicted, and the range is one of
    80%. of: how many repeats, or scenarios, it comes from.
    """

    value: float
    low: float
    high: float
    measured: bool
    of: int


@dataclass(frozen=True)
class RunnerUp:
    """Another config. ratio: its time over that of the launched config; time: in microseconds. near, of: in
    how many of the `of` nearest scenarios that timed the launched config it was timed as well."""

    config: Config
    ratio: Figure
    time: float
    near: int
    of: int


@dataclass(frozen=True)
class Estimate:
    """time: of the launched config in microseconds. slowdown: over the best time in the table.

    runners_up: the fastest first. sparse: how many configs were timed too rarely around here to compare.
    """

    time: Figure
    slowdown: Figure
    runners_up: tuple[RunnerUp, ...]
    sparse: int


def estimate(
    subject: Subject, config: Config, values: Mapping[str, int], points: Floats, at: Floats, exact: int | None
) -> Estimate | None:
    """What the table tells of a config at a shape; None where it was timed in too few scenarios.

    points: [scenarios, features] and at: [features] of one Space. exact: the scenario that is this shape.
    """
    column = subject.column(config)
    if column is None:
        return None
    if exact is not None and np.isfinite(subject.times[exact, column]):
        return _measured(subject, column, exact)
    return _predicted(subject, column, values, points, at)


def _measured(subject: Subject, column: int, row: int) -> Estimate:
    times = subject.times[row]
    repeats = _repeats(subject.problem, row, column)
    others = [other for other in np.flatnonzero(np.isfinite(times)).tolist() if other != column]
    runners_up = [
        RunnerUp(
            subject.problem.configs[other],
            _certain(float(times[other] / times[column])),
            float(times[other]),
            1,
            1,
        )
        for other in others
    ]
    time = Figure(float(times[column]), float(repeats.min()), float(repeats.max()), True, len(repeats))
    slowdown = _certain(float(times[column] / np.nanmin(times)))
    return Estimate(time, slowdown, _ranked(runners_up), len(times) - 1 - len(others))


def _repeats(problem: Problem, row: int, column: int) -> Floats:
    """All times of a config in a scenario."""
    table = problem.table
    rows = table.row_scenario == table.scenarios.index(problem.scenarios[row])
    times = table.times[rows, problem.table_columns[column]]
    return np.asarray(times[np.isfinite(times)])


def _certain(value: float) -> Figure:
    return Figure(value, value, value, True, 1)


def _predicted(
    subject: Subject, column: int, values: Mapping[str, int], points: Floats, at: Floats
) -> Estimate | None:
    logarithms = np.log(subject.times)
    own = logarithms[:, column]
    time = forecast(points, own, at)
    slowdown = forecast(points, own - np.nanmin(logarithms, axis=1), at)
    if time is None or slowdown is None:
        return None
    timed = np.flatnonzero(np.isfinite(own))
    near = timed[np.argsort(((points[timed] - at) ** 2).sum(axis=1).round(6), kind="stable")[:NEAR]]
    runners_up, sparse = [], 0
    for other, config in enumerate(subject.problem.configs):
        if other == column or not _may_run(config, values, subject):
            continue
        both = int(np.isfinite(logarithms[near, other]).sum())
        ratio = forecast(points, logarithms[:, other] - own, at) if 2 * both >= len(near) else None
        if ratio is None:
            sparse += 1
            continue
        figure = _figure(ratio)
        runners_up.append(RunnerUp(config, figure, math.exp(time.value) * figure.value, both, len(near)))
    return Estimate(_figure(time), _at_least_one(_figure(slowdown)), _ranked(runners_up), sparse)


def _figure(found: Forecast) -> Figure:
    low, high = (math.exp(found.value + side * found.margin) for side in (-1, 1))
    return Figure(math.exp(found.value), low, high, False, found.scenarios)


def _at_least_one(figure: Figure) -> Figure:
    """No config is faster than the best one."""
    value, low, high = (max(1.0, end) for end in (figure.value, figure.low, figure.high))
    return Figure(value, low, high, figure.measured, figure.of)


def _ranked(runners_up: list[RunnerUp]) -> tuple[RunnerUp, ...]:
    return tuple(sorted(runners_up, key=lambda one: (round(one.ratio.value, 9), one.config)))


def _may_run(config: Config, values: Mapping[str, int], subject: Subject) -> bool:
    """Whether every constraint that can be told holds for a config at a shape."""
    if config == subject.kernel.fallback:
        return True
    known = {**subject.problem.device.limits, **values, **dict(config.parameters)}
    return all(
        holds(constraint, known)
        for constraint in subject.kernel.constraints
        if constraint.binds(config)
        and expr.names(constraint.left) | expr.names(constraint.right) <= set(known)
    )
