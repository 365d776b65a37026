"""Estimate the time of the launched config at a shape, and compare the other configs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from treegen.core.problem import holds
from treegen.core.spec import Config
from treegen.review.explain.feature_space import Floats
from treegen.review.explain.kriging import NEAR, LogPrediction, predict
from treegen.review.explain.tuned_module import TunedModule


@dataclass(frozen=True)
class RangedValue:
    """A time or a ratio with its range: of the repeats where it was measured, else of 80%."""

    value: float
    low: float
    high: float
    measured: bool
    of: int  # repeats or scenarios that it comes from


@dataclass(frozen=True)
class RunnerUp:
    """Another config than the launched one."""

    config: Config
    ratio: RangedValue  # its time over that of the launched config
    time: float  # microseconds
    near: int  # of the `of` nearest scenarios that timed the launched config, those that timed it as well
    of: int


@dataclass(frozen=True)
class TimeEstimate:
    """The launched config's time at a shape, by the table."""

    time: RangedValue  # microseconds
    slowdown: RangedValue
    runners_up: tuple[RunnerUp, ...]  # fastest first
    not_compared: int  # other configs that were timed too rarely around here

    @property
    def compares(self) -> bool:
        """Return whether there is anything to say of other configs."""
        return bool(self.runners_up) or self.not_compared > 0


def estimate(
    tuned: TunedModule,
    config: Config,
    values: Mapping[str, int],
    points: Floats,
    at: Floats,
    measured_row: int | None,
) -> TimeEstimate | None:
    """Measure or predict a config's time at a shape; None where it was timed in too few scenarios.

    points: [scenarios, features] and at: [features] of one FeatureSpace. measured_row: the scenario that is
    this very shape.
    """
    column = tuned.column(config)
    if column is None:
        return None
    if measured_row is not None and np.isfinite(tuned.times[measured_row, column]):
        return _measured(tuned, column, measured_row)
    return _predicted(tuned, column, values, points, at)


def _measured(tuned: TunedModule, column: int, row: int) -> TimeEstimate:
    table, problem, times = tuned.problem.table, tuned.problem, tuned.times[row]
    rows = table.row_scenario == table.scenarios.index(problem.scenarios[row])
    repeats = table.times[rows, problem.table_columns[column]]
    repeats = repeats[np.isfinite(repeats)]
    time = float(times[column])
    others = [other for other in np.flatnonzero(np.isfinite(times)).tolist() if other != column]
    runners_up = [
        RunnerUp(problem.configs[other], _exact(float(times[other]) / time), float(times[other]), 1, 1)
        for other in others
    ]
    return TimeEstimate(
        RangedValue(time, float(repeats.min()), float(repeats.max()), True, len(repeats)),
        _exact(time / float(np.nanmin(times))),
        _ranked(runners_up),
        len(times) - 1 - len(others),
    )


def _exact(value: float) -> RangedValue:
    return RangedValue(value, value, value, True, 1)


def _predicted(
    tuned: TunedModule, column: int, values: Mapping[str, int], points: Floats, at: Floats
) -> TimeEstimate | None:
    logarithms = np.log(tuned.times)
    launched = logarithms[:, column]
    time = predict(points, launched, at)
    slowdown = predict(points, launched - np.nanmin(logarithms, axis=1), at)
    if time is None or slowdown is None:
        return None
    timed = np.flatnonzero(np.isfinite(launched))
    near = timed[np.argsort(((points[timed] - at) ** 2).sum(axis=1).round(6), kind="stable")[:NEAR]]
    runners_up, not_compared = [], 0
    for other, config in enumerate(tuned.problem.configs):
        if other == column or not _may_run(config, values, tuned):
            continue
        both = int(np.isfinite(logarithms[near, other]).sum())
        ratio = predict(points, logarithms[:, other] - launched, at) if 2 * both >= len(near) else None
        if ratio is None:
            not_compared += 1
            continue
        ranged = _ranged(ratio)
        runners_up.append(RunnerUp(config, ranged, math.exp(time.value) * ranged.value, both, len(near)))
    return TimeEstimate(_ranged(time), _ranged(slowdown, least=1.0), _ranked(runners_up), not_compared)


def _ranged(prediction: LogPrediction, least: float = 0.0) -> RangedValue:
    low, value, high = (
        max(least, math.exp(prediction.value + side * prediction.margin)) for side in (-1, 0, 1)
    )
    return RangedValue(value, low, high, False, prediction.scenarios)


def _ranked(runners_up: list[RunnerUp]) -> tuple[RunnerUp, ...]:
    return tuple(sorted(runners_up, key=lambda one: (round(one.ratio.value, 9), one.config)))


def _may_run(config: Config, values: Mapping[str, int], tuned: TunedModule) -> bool:
    return config == tuned.kernel.fallback or not broken_constraints(config, values, tuned)


def broken_constraints(config: Config, values: Mapping[str, int], tuned: TunedModule) -> tuple[str, ...]:
    """The constraints that a config breaks at a shape, of those whose features are known."""
    known = {**tuned.problem.device.limits, **values, **dict(config.parameters)}
    return tuple(
        constraint.text
        for constraint in tuned.kernel.constraints
        if constraint.binds(config) and constraint.names <= known.keys() and not holds(constraint, known)
    )
