"""What `treegen explain` predicts: against its definition, by brute force, and against unseen truths."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import DEVICE, FEATURES, KERNEL, Cell, Row, build, spec, write_project
from treegen_strategies import examples

from treegen.core.problem import UNIT, UNTIMED
from treegen.core.spec import Config
from treegen.review.explain.estimate import TimeEstimate, estimate
from treegen.review.explain.feature_space import feature_space
from treegen.review.explain.kriging import FEWEST, NEAR, Floats, predict
from treegen.review.explain.tuned_module import TunedModule, read_tuned_module

NARROW, MEDIUM, WIDE = (
    Config("plain", (("block", b), ("warps", w))) for b, w in ((16, 2), (64, 4), (128, 8))
)


def _process(points: Floats, values: Floats, at: Floats, center: Floats) -> tuple[float, float]:
    """Mean and deviation of the documented Gaussian process at a point, as the book writes them.

    center: where the linear trend has its origin.
    """

    def covariance(one: Floats, other: Floats) -> float:
        away = math.sqrt(3) * math.dist(one, other) / 16
        return (1 + away) * math.exp(-away) + 100 + float((one - center) @ (other - center))

    noise = 0.05**2
    matrix = np.array([[covariance(one, other) for other in points] for one in points])
    solved = np.linalg.inv(matrix + noise * np.eye(len(points)))
    here = np.array([covariance(at, one) for one in points])
    return float(here @ solved @ values), math.sqrt(covariance(at, at) + noise - float(here @ solved @ here))


def test_a_forecast_is_the_process_and_its_range_the_leave_one_out_errors_by_brute_force() -> None:
    random = np.random.default_rng(1)
    points = random.uniform(0, 8, (NEAR + 8, 3))
    values = points @ [1.0, 0.5, 0.0] + np.sin(points[:, 2]) + random.normal(0, 0.1, len(points))
    at = np.array([4.0, 4.0, 4.0])
    found = predict(points, values, at)
    assert found is not None
    mean, deviation = _process(points, values, at, at)
    errors = []
    for row in sorted(range(len(points)), key=lambda row: math.dist(points[row], at))[:NEAR]:
        others = np.arange(len(points)) != row
        alone, stated = _process(points[others], values[others], points[row], at)
        errors.append(abs(values[row] - alone) / stated)
    rank = math.ceil(0.8 * (NEAR + 1))
    assert found.value == pytest.approx(mean, abs=1e-6)
    assert found.margin == pytest.approx(sorted(errors)[rank - 1] * deviation, rel=1e-4)
    assert found.scenarios == len(points)


@examples(20)
@given(st.lists(st.floats(-1, 1), min_size=3, max_size=3), st.integers(0, 1000))
def test_times_that_are_powers_of_the_features_are_forecast_so(slopes: list[float], seed: int) -> None:
    points = np.random.default_rng(seed).uniform(0, 10, (60, 3))
    at = np.array([5.0, 5.0, 5.0])
    found = predict(points, points @ slopes + 3, at)
    assert found is not None
    assert found.value == pytest.approx(at @ slopes + 3, abs=0.02)


def test_too_few_values_and_too_wide_ranges_give_no_forecast() -> None:
    points = np.arange(FEWEST, dtype=np.float64)[:, None]
    values = np.zeros(FEWEST)
    assert predict(points, values, np.array([3.0])) is not None
    assert predict(points, np.where(points[:, 0] == 5, np.nan, values), np.array([3.0])) is None
    wild = np.where(np.arange(FEWEST) % 2, 20.0, -20.0)
    assert predict(points, wild, np.array([3.0])) is None


def test_ranges_hold_about_the_share_of_unseen_truths_that_they_state() -> None:
    random = np.random.default_rng(7)
    points = random.uniform(0, 8, (400, 2))
    # A third of the shapes is much harder to tell than the others: their ranges must be wider, not all.
    spread = np.where(points[:, 0] > 5.5, 0.4, 0.02)
    values = 0.7 * points[:, 0] + np.sin(points[:, 1]) + random.normal(0, 1, 400) * spread
    held: dict[bool, list[bool]] = {True: [], False: []}
    for row in range(0, 400, 2):
        rest = np.arange(400) != row
        found = predict(points[rest], values[rest], points[row])
        assert found is not None
        held[bool(spread[row] > 0.1)].append(abs(values[row] - found.value) <= found.margin)
    assert 0.72 <= np.mean(held[True]) <= 0.9
    assert 0.72 <= np.mean(held[False]) <= 0.9


SHAPES: list[Row] = [(2**r, 2**c, 2) for r in range(6) for c in range(6)]


def _times(row: Row) -> list[Cell]:
    """Wide takes a tenth longer than narrow everywhere; medium was hardly timed, and failed once."""
    work = row[0] * row[1]
    medium: Cell = {1: 5.0, 2: "inf", 4: 7.0}.get(work, "")
    return [float(10 * work), medium, float(11 * work)]


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> TunedModule:
    path = write_project(tmp_path_factory.mktemp("project"), spec(), shapes=SHAPES, times=_times)
    assert build(path) == 0
    return read_tuned_module(path, KERNEL, DEVICE)


def test_times_are_those_of_the_measureds_costs(tuned: TunedModule) -> None:
    cost = tuned.problem.cost
    timed = cost < UNTIMED
    assert (np.isfinite(tuned.times) == timed).all()
    best = np.nanmin(tuned.times, axis=1, keepdims=True)
    rows = np.broadcast_to(np.log(tuned.times / best) * UNIT, cost.shape)
    assert np.abs(rows[timed] - cost[timed]).max() <= 1
    for row, scenario in enumerate(tuned.problem.scenarios):
        rows_, columns = SHAPES[int(scenario[1:]) - 1][:2]
        assert tuned.times[row, tuned.problem.configs.index(NARROW)] == 10 * rows_ * columns


def _estimate(tuned: TunedModule, config: Config, row: Row, exact: int | None = None) -> TimeEstimate | None:
    values = {**dict(zip(FEATURES, row, strict=True)), "area": row[0] * row[1]}
    space = feature_space(tuned.problem)
    return estimate(tuned, config, values, space.points, space.at(values), exact)


def test_a_config_is_predicted_between_scenarios_and_runners_up_relative_to_it(tuned: TunedModule) -> None:
    found = _estimate(tuned, NARROW, (6, 12, 2))
    assert found is not None
    assert found.time.value == pytest.approx(720, rel=0.05)
    assert found.time.low <= found.time.value <= found.time.high and not found.time.measured
    (wide,) = found.runners_up
    assert wide.config == WIDE and wide.ratio.value == pytest.approx(1.1, rel=0.01)
    assert wide.time == pytest.approx(found.time.value * wide.ratio.value)
    assert (wide.near, wide.of) == (NEAR, NEAR)
    assert found.not_compared == 1  # medium was timed too rarely to compare


def test_a_config_that_was_timed_nowhere_or_rarely_has_no_time(tuned: TunedModule) -> None:
    assert _estimate(tuned, Config("plain", (("block", 32), ("warps", 1))), (6, 12, 2)) is None
    assert _estimate(tuned, MEDIUM, (6, 12, 2)) is None


def test_a_runner_up_must_be_allowed_at_the_shape(tmp_path: Path) -> None:
    path = write_project(tmp_path, spec(), shapes=SHAPES, times=lambda row: [10.0, 20.0, 30.0])
    assert build(path) == 0
    tuned = read_tuned_module(path, KERNEL, DEVICE)
    for heads, allowed in ((16, [NARROW, MEDIUM]), (17, [MEDIUM]), (65, [MEDIUM])):  # the fallback always may
        found = _estimate(tuned, WIDE, (4, 4, heads))
        assert found is not None
        assert [runner.config for runner in found.runners_up] == allowed


def test_at_a_measured_scenario_only_what_was_timed_there_counts(tuned: TunedModule) -> None:
    place = tuned.problem.scenarios.index("s001")
    found = _estimate(tuned, NARROW, (1, 1, 2), place)
    assert found is not None and found.time.measured
    assert (found.time.value, found.time.low, found.time.high, found.time.of) == (10.0, 10.0, 10.0, 2)
    assert found.slowdown.value == 2.0
    assert [(r.config, r.ratio.value) for r in found.runners_up] == [(MEDIUM, 0.5), (WIDE, 1.1)]
