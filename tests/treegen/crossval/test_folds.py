"""Which scenarios are held out, and the held-out figures of trees and of a classifier."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import NARROW, WIDE, Cell, Row, problem
from treegen_strategies import examples

from treegen.build import fit_tree
from treegen.core.errors import InputError
from treegen.crossval.folds import Evaluation, cross_validate, evaluate, split_copies
from treegen.crossval.parallel import processes
from treegen.fit.costs import copies
from treegen.read.problem import read_table

LINE: list[Row] = [(i + 1, 5, 2) for i in range(12)]


@examples(50)
@given(st.lists(st.integers(0, 9), min_size=4, max_size=40), st.integers(2, 5), st.integers(1, 3))
def test_every_repeat_holds_out_each_scenario_once_and_copies_together(
    numbers: list[int], folds: int, repeats: int
) -> None:
    copy = copies(np.array([[number] for number in numbers]))
    folds = min(folds, int(copy.max()) + 1)
    if folds < 2:
        return
    found = split_copies(copy, folds, repeats)
    assert len(found) == folds * repeats
    for repeat in range(repeats):
        held = np.concatenate([fold.test for fold in found[repeat * folds : (repeat + 1) * folds]])
        assert sorted(held) == list(range(len(numbers)))
    for fold in found:
        assert sorted([*fold.train, *fold.test]) == list(range(len(numbers)))
        assert not {numbers[row] for row in fold.train} & {numbers[row] for row in fold.test}


def test_repeats_shuffle_anew() -> None:
    first, _, second, _ = split_copies(np.arange(20), 2, 2)
    assert first.test.tolist() != second.test.tolist()


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


def test_a_planted_threshold_costs_only_its_neighbours(tmp_path: Path) -> None:
    found = _evaluated(tmp_path, (10.0, 20.0), (20.0, 10.0)).tree
    # Only scenarios 6 and 7 can be wrong, by a factor of 2.
    assert 10 / 12 <= found.agreement < 1
    assert found.slowdown == pytest.approx(2 ** (1 - found.agreement))


def test_choices_that_failed_are_counted(tmp_path: Path) -> None:
    found = _evaluated(tmp_path, (10.0, math.inf), (math.inf, 10.0)).tree
    assert 0 < found.untimed <= 2 / 12
    assert found.agreement == pytest.approx(1 - found.untimed)
    assert found.slowdown == pytest.approx(2**found.untimed) and found.timed_slowdown == 1


def test_one_config_that_always_wins_is_found_by_both(tmp_path: Path) -> None:
    found = _evaluated(tmp_path, (10.0, 20.0), (10.0, 20.0))
    assert (found.tree.slowdown, found.classifier.slowdown) == (1, 1)


@pytest.mark.parametrize("shapes", [LINE[:9], [(1, 8, 2)] * 12], ids=["nine scenarios", "copies of one"])
def test_a_table_that_is_too_small_has_no_figures(tmp_path: Path, shapes: list[Row]) -> None:
    made = problem(tmp_path, shapes=shapes)
    assert evaluate(made, cross_validate(made, fit_tree)) is None


def test_results_of_several_processes_keep_their_order(tmp_path: Path) -> None:
    made, progress = problem(tmp_path), []
    with processes(2, lambda *told: progress.append(told)) as spread:
        assert spread("squares", abs, range(-20, 0)) == list(range(20, 0, -1))
        assert spread("fits", fit_tree, [made] * 2) == [fit_tree(made)] * 2
        with pytest.raises(InputError, match=r"^no folder: no such table folder"):
            spread("refused", read_table, [Path("no folder")])
    assert progress[:2] == [("squares", 0, 20), ("squares", 1, 20)]
