"""Which scenarios and groups are held out, and the held-out figures of rows and of a classifier."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import MEDIUM, NARROW, WIDE, Cell, Row, problem, write_winners
from treegen_strategies import examples

from treegen.core.errors import InputError
from treegen.core.problem import UNIT, Problem
from treegen.crossval.folds import (
    Evaluation,
    Fold,
    cross_validate,
    folds_of,
    group_folds,
    groups_of,
    held_out,
    split_copies,
    standard_error,
)
from treegen.crossval.parallel import processes
from treegen.crossval.score import Ints
from treegen.fit.costs import copies
from treegen.fit.fit import fit
from treegen.read.problem import read_table

LINE: list[Row] = [(i + 1, 5, 2) for i in range(12)]


@examples(50)
@given(st.lists(st.integers(0, 9), min_size=4, max_size=40), st.integers(2, 5))
def test_each_scenario_is_held_out_once_and_copies_together(numbers: list[int], folds: int) -> None:
    copy = copies(np.array([[number] for number in numbers]))
    folds = min(folds, int(copy.max()) + 1)
    if folds < 2:
        return
    found = split_copies(copy, folds)
    assert len(found) == folds
    assert sorted(np.concatenate([fold.test for fold in found])) == list(range(len(numbers)))
    for fold in found:
        assert sorted([*fold.train, *fold.test]) == list(range(len(numbers)))
        assert not {numbers[row] for row in fold.train} & {numbers[row] for row in fold.test}


@pytest.fixture
def of_models(tmp_path: Path) -> Problem:
    """Six models with a best config each, whose steps are twice as long as those of the model before."""
    shapes = [((64 << model) + step, 8, model) for model in range(6) for step in range(20)]

    def times(shape: Row) -> list[Cell]:
        return [10.0 if config == shape[2] * 2 % 3 else 20.0 for config in range(3)]

    return problem(tmp_path, {"constraints": [], "derived": {}}, shapes=shapes, times=times)


def test_folds_of_scenarios_flatter_where_those_of_a_model_are_alike_and_groups_tell(
    of_models: Problem,
) -> None:
    """Rows remember models by the length of their steps, which says nothing about the next model."""
    folds, groups = folds_of(of_models), group_folds(of_models)
    assert (len(folds), len(groups)) == (5, 6)
    found = cross_validate(of_models, fit)
    assert found is not None and found.groups is not None
    seen, unseen = found.folds, found.groups
    assert seen.quality.slowdown is not None and unseen.quality.slowdown is not None
    assert seen.quality.slowdown < 1.1 < 1.3 < unseen.quality.slowdown


def test_a_fold_of_groups_holds_whole_groups_out(of_models: Problem) -> None:
    heads = of_models.column("heads")
    for fold in group_folds(of_models):
        assert not set(heads[fold.train]) & set(heads[fold.test])
    assert len(group_folds(of_models, ["columns"])) == 0  # all alike
    assert groups_of(of_models, ["heads"]).tolist() == groups_of(of_models).tolist()


def test_few_groups_are_left_out_one_at_a_time(tmp_path: Path) -> None:
    shapes = [(rows + 1, 8, heads) for rows in range(6) for heads in (2, 4, 8)]
    made = problem(tmp_path, {"constraints": []}, shapes=shapes)
    folds = group_folds(made)
    assert sorted(np.unique(made.column("heads")[fold.test]).tolist() for fold in folds) == [[2], [4], [8]]


def _bootstrap(cost: Ints, group: Ints, draws: int) -> float:
    """The standard deviation of the mean over whole groups drawn with replacement."""
    random, parts = np.random.RandomState(0), [cost[group == g] for g in np.unique(group)]
    means = [
        np.concatenate([parts[place] for place in random.randint(len(parts), size=len(parts))]).mean()
        for _ in range(draws)
    ]
    return float(np.std(means)) / UNIT


def test_the_standard_error_is_the_bootstrap_s_over_groups() -> None:
    random = np.random.RandomState(1)
    group = np.repeat(np.arange(60), random.randint(1, 12, size=60))
    cost = np.rint(
        UNIT * (0.1 * random.exponential(size=60)[group] + 0.02 * random.exponential(size=len(group)))
    )
    for of in (group, np.arange(len(group))):
        assert standard_error(cost.astype(np.int64), of) == pytest.approx(_bootstrap(cost, of, 2000), rel=0.1)


def test_the_standard_error_of_single_scenarios_is_the_textbook_s() -> None:
    cost = np.random.RandomState(2).randint(0, UNIT, size=40)
    expected = np.std(cost, ddof=1) / math.sqrt(40) / UNIT
    assert standard_error(cost, np.arange(40)) == pytest.approx(expected)
    doubled = np.concatenate([cost, cost])  # copies add no evidence
    assert standard_error(doubled, np.arange(80) % 40) == pytest.approx(expected)


def test_winners_have_the_error_of_a_share(tmp_path: Path) -> None:
    made = problem(tmp_path / "a")
    won = replace(made, table=read_table(write_winners(tmp_path / "won")))
    every = Fold(np.arange(0), np.arange(9))
    share = held_out(won, [every], [np.array([0, 0, UNIT] * 3)], np.arange(9))
    assert share.quality.agreement == pytest.approx(2 / 3)
    assert share.error == pytest.approx(math.sqrt(2 / 9 / 8))


def _evaluated(folder: Path, low: tuple[Cell, Cell], high: tuple[Cell, Cell]) -> Evaluation:
    """Of twelve scenarios in a line, with the times of two configs in the first and the last six."""
    made = problem(
        folder,
        {"constraints": [], "derived": {}},
        shapes=LINE,
        times=lambda shape: low if shape[0] <= 6 else high,
        configs=(NARROW, WIDE),
    )
    found = cross_validate(made, fit)
    assert found is not None and found.groups is None
    return found


def test_a_planted_threshold_costs_only_its_neighbours(tmp_path: Path) -> None:
    found = _evaluated(tmp_path, (10.0, 20.0), (20.0, 10.0)).folds.quality
    # Only scenarios 6 and 7 can be wrong, by a factor of 2.
    assert 10 / 12 <= found.agreement < 1
    assert found.slowdown == pytest.approx(2 ** (1 - found.agreement))


def test_choices_that_failed_are_counted(tmp_path: Path) -> None:
    found = _evaluated(tmp_path, (10.0, math.inf), (math.inf, 10.0)).folds.quality
    assert 0 < found.untimed <= 2 / 12
    assert found.agreement == pytest.approx(1 - found.untimed)
    assert found.slowdown == pytest.approx(2**found.untimed)


def test_one_config_that_always_wins_is_found_by_both(tmp_path: Path) -> None:
    found = _evaluated(tmp_path, (10.0, 20.0), (10.0, 20.0))
    assert (found.folds.quality.slowdown, found.classifier.slowdown, found.folds.error) == (1, 1, 0)


@pytest.mark.parametrize("shapes", [LINE[:9], [(1, 8, 2)] * 12], ids=["nine scenarios", "copies of one"])
def test_a_table_that_is_too_small_has_no_figures(tmp_path: Path, shapes: list[Row]) -> None:
    made = problem(tmp_path, shapes=shapes, configs=(NARROW, MEDIUM, WIDE))
    assert cross_validate(made, fit) is None


def test_results_of_several_processes_keep_their_order(tmp_path: Path) -> None:
    made, progress = problem(tmp_path), []
    with processes(2, lambda *told: progress.append(told)) as parallel_map:
        assert parallel_map("squares", abs, range(-20, 0)) == list(range(20, 0, -1))
        assert parallel_map("fits", fit, [made] * 2) == [fit(made)] * 2
        with pytest.raises(InputError, match=r"^no folder: "):
            parallel_map("refused", read_table, [Path("no folder")])
    assert progress[:2] == [("squares", 0, 20), ("squares", 1, 20)]
