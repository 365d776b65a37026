"""Learning curves and the law through them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import SIDES, problem, write_winners
from treegen_strategies import examples

from treegen.core.problem import UNIT, Problem
from treegen.core.tree import Leaf, Tree
from treegen.crossval.folds import split
from treegen.crossval.parallel import in_order
from treegen.read.build_problem import build_problem
from treegen.read.table_file import read_table
from treegen.review.eval.curves import HORIZON, PowerLaw, TargetStatus, extrapolate, fit_law, learning_curves
from treegen.review.eval.ways import FOREST, OURS, held_out

SIZES = (10, 20, 40, 80)


@examples(50)
@given(st.floats(0.01, 10), st.floats(-2, 2))
def test_a_law_is_found_again(scale: float, exponent: float) -> None:
    found = fit_law([(n, scale * n**-exponent) for n in SIZES])
    assert found is not None
    assert found.scale == pytest.approx(scale) and found.exponent == pytest.approx(exponent, abs=1e-9)


def test_the_number_of_scenarios_by_hand() -> None:
    """loss = 1 / n: a hundredth takes a hundred."""
    found = extrapolate([(n, 1 / n) for n in SIZES], 1 / 100.5)
    assert (found.reach, found.scenarios) == (TargetStatus.MORE, 101)
    assert found.law == PowerLaw(pytest.approx(1), pytest.approx(1))


def test_just_within_the_horizon_and_just_beyond() -> None:
    points, edge = [(n, 1 / n) for n in SIZES], 1 / (HORIZON * SIZES[-1])
    assert extrapolate(points, edge * 1.001).reach is TargetStatus.MORE
    assert extrapolate(points, edge * 0.999).reach is TargetStatus.NEVER


@pytest.mark.parametrize(
    ("points", "reach"),
    [
        ([(n, 0.5) for n in SIZES], TargetStatus.NEVER),
        ([(n, n / 100) for n in SIZES], TargetStatus.NEVER),
        ([(10, 0.5), (20, 0.1)], TargetStatus.THERE),
        ([(10, 0.5), (20, 0.0)], TargetStatus.THERE),
        ([(10, 0.5)], TargetStatus.TOO_FEW),
        ([(10, 0.0), (20, 0.5)], TargetStatus.TOO_FEW),
    ],
)
def test_targets_without_a_number(points: list[tuple[float, float]], reach: TargetStatus) -> None:
    found = extrapolate(points, 0.1)
    assert (found.reach, found.scenarios) == (reach, None)


def test_at_least_as_many_scenarios_are_needed_as_were_measured() -> None:
    """The law reaches the target before the last point, which has not reached it."""
    found = extrapolate([(10, 1.0), (20, 0.05), (40, 0.11)], 0.1)
    assert found.law is not None and found.law.at(40) < 0.1
    assert (found.reach, found.scenarios) == (TargetStatus.MORE, 40)


def _problem(folder: Path) -> Problem:
    return problem(folder, shapes=[(rows, columns, 2) for rows in SIDES for columns in SIDES])


def _by_count(known: Problem) -> Tree:
    """A fit that returns the first config everywhere from eight scenarios.

    From fewer it returns the second config, from fewer than six the third.
    """
    return Leaf(known.configs[0 if len(known.cost) >= 8 else 1 if len(known.cost) >= 6 else 2])


def test_points_are_scored_on_the_folds_of_the_whole(tmp_path: Path) -> None:
    problem_ = _problem(tmp_path)
    folds = split(16, 2, 2)
    full = held_out(problem_, folds, _by_count, in_order, "")
    ours, forest = learning_curves(problem_, folds, full, _by_count, in_order, "")
    assert (ours.way, forest.way) == (OURS, FOREST)
    assert [point.scenarios for point in ours.points] == [4, 6, 8]  # an eighth and a quarter are too few
    means = [math.exp(int(problem_.cost[:, config].sum()) / 16 / UNIT) for config in (2, 1, 0)]
    assert [point.slowdown for point in ours.points] == pytest.approx(means) and len(set(means)) == 3
    assert forest.points[-1].slowdown == full[-1].quality.slowdown


def test_a_table_of_winners_has_shares_and_no_law(tmp_path: Path) -> None:
    problem_ = _problem(tmp_path)
    shapes = [(rows, columns, 2) for rows in SIDES for columns in SIDES]
    table = read_table(write_winners(tmp_path / "winners", shapes=shapes))
    winners = build_problem(problem_.kernel, problem_.device, table)
    folds = split(16, 2, 1)
    full = held_out(winners, folds, _by_count, in_order, "")
    for curve in learning_curves(winners, folds, full, _by_count, in_order, ""):
        assert curve.extrapolation is None
        assert all(point.slowdown is None and 0 <= point.agreement <= 1 for point in curve.points)


def test_few_scenarios_give_a_curve_of_one_point(tmp_path: Path) -> None:
    problem_ = problem(tmp_path, shapes=[(1, 1, 2), (8, 8, 2), (64, 64, 2), (512, 1, 2)])
    folds = split(4, 2, 1)
    full = held_out(problem_, folds, _by_count, in_order, "")
    for curve in learning_curves(problem_, folds, full, _by_count, in_order, ""):
        assert len(curve.points) == 1 and curve.extrapolation is not None
        assert curve.extrapolation.reach in (TargetStatus.TOO_FEW, TargetStatus.THERE)
