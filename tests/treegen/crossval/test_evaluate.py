"""evaluate: held-out figures of fitted trees and of a classifier."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from treegen_builders import NARROW, WIDE, Cell, Row, problem

from treegen.build import fit_tree
from treegen.crossval.evaluate import Evaluation, cross_validate, evaluate

LINE: list[Row] = [(i + 1, 5, 2) for i in range(12)]


def _evaluated(folder: Path, low: tuple[Cell, Cell], high: tuple[Cell, Cell]) -> Evaluation:
    """Of twelve scenarios in a line, with the times of two configs in the first and the last six."""
    made = problem(
        folder,
        {"constraints": [], "derived": {}},
        shapes=LINE,
        times=lambda shape: low if shape[0] <= 6 else high,
        configs=(NARROW, WIDE),
    )
    found = evaluate(made, cross_validate(made, fit_tree))
    assert found is not None
    return found


def test_a_planted_threshold(tmp_path: Path) -> None:
    found = _evaluated(tmp_path, (10.0, 20.0), (20.0, 10.0)).tree
    # Only scenarios 6 and 7 can be wrong, by a factor of 2.
    assert 10 / 12 <= found.agreement < 1
    assert found.slowdown == pytest.approx(2 ** (1 - found.agreement))


def test_choices_that_failed_are_counted(tmp_path: Path) -> None:
    found = _evaluated(tmp_path, (10.0, math.inf), (math.inf, 10.0)).tree
    assert 0 < found.untimed <= 2 / 12
    assert found.agreement == pytest.approx(1 - found.untimed)
    assert found.slowdown == pytest.approx(2**found.untimed) and found.timed_slowdown == 1


def test_one_config_always_wins(tmp_path: Path) -> None:
    found = _evaluated(tmp_path, (10.0, 20.0), (10.0, 20.0))
    assert (found.tree.agreement, found.tree.slowdown) == (1, 1)
    assert (found.classifier.agreement, found.classifier.slowdown) == (1, 1)


def test_a_small_table_has_no_figures(tmp_path: Path) -> None:
    made = problem(tmp_path)
    assert evaluate(made, cross_validate(made, fit_tree)) is None


def test_copies_of_one_scenario_have_no_figures(tmp_path: Path) -> None:
    made = problem(tmp_path, shapes=[(1, 8, 2)] * 12)
    assert evaluate(made, cross_validate(made, fit_tree)) is None
