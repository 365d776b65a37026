"""A rebuild with a previous tree: what is fitted, when, and to what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from treegen_builders import SIDES, Row, problem

from treegen.core.problem import UNTIMED, Problem
from treegen.core.tree import Leaf, Split, Tree
from treegen.crossval.choices import Fit
from treegen.crossval.folds import cross_validate, held_out
from treegen.update import rebuild as rebuilding
from treegen.update.keep import ChosenTree, TreeOrigin

SHAPES: list[Row] = [(rows, columns, 2) for rows in SIDES for columns in SIDES]


@pytest.fixture
def made(tmp_path: Path) -> Problem:
    """Narrow is best everywhere; medium is the fallback."""
    return problem(tmp_path, shapes=SHAPES, times=lambda row: [10.0, 20.0, 40.0])


def rebuild(
    problem: Problem, previous: Tree | str | None, fit: Fit, other_scenarios: bool = False
) -> ChosenTree:
    fitted = fit(problem)
    return rebuilding.rebuild(
        problem, previous, fitted, lambda: cross_validate(problem, fit), other_scenarios=other_scenarios
    )


def _best(known: Problem) -> Tree:
    return Leaf(known.configs[0])


def test_every_scenario_is_held_out_once_a_repeat(made: Problem) -> None:
    """The tree of the n-th fold launches config n % 3, so that costs tell which one chose."""
    calls: list[frozenset[str]] = []

    def fit(known: Problem) -> Tree:
        calls.append(frozenset(known.scenarios))
        return Leaf(known.configs[(len(calls) - 1) % 3])

    found = held_out(made, cross_validate(made, fit))
    assert found.shape == (1, 16) and len(calls) == 5
    for row, scenario in enumerate(made.scenarios):
        (number,) = [n for n in range(5) if scenario not in calls[n]]
        assert found[0, row] == made.cost[row, number % 3]


def test_copies_and_few_scenarios(tmp_path: Path) -> None:
    two = problem(tmp_path / "a", shapes=[(1, 1, 2)] * 3 + [(64, 64, 2)])
    fold_trees = cross_validate(two, _best)
    sizes = [sorted(len(side) for side in (one.fold.train, one.fold.test)) for one in fold_trees]
    assert sizes == [[1, 3]] * 2
    one = problem(tmp_path / "b", shapes=[(1, 1, 2)] * 3)
    assert cross_validate(one, _best) == () and held_out(one, ()).shape == (0, 3)


def test_without_a_readable_previous_tree(made: Problem) -> None:
    assert rebuild(made, None, _best) == ChosenTree(_best(made), TreeOrigin.FRESH, _best(made))
    assert rebuild(made, "it is torn", _best) == ChosenTree(
        _best(made), TreeOrigin.FRESH, _best(made), why_fresh="it is torn"
    )


def test_what_looks_like_a_guard_is_stripped_from_a_fresh_tree(made: Problem) -> None:
    def fit(known: Problem) -> Tree:
        return Split("rows", 1000, Leaf(known.configs[0]), Leaf(known.kernel.fallback))

    found = rebuild(made, None, fit)
    assert found.fresh == found.tree == _best(made)


def test_folds_are_fitted_only_where_they_matter(made: Problem) -> None:
    fitted: list[int] = []

    def fit(known: Problem) -> Tree:
        fitted.append(len(known.cost))
        return Leaf(known.configs[0])

    assert rebuild(made, Leaf(made.configs[0]), fit).origin is TreeOrigin.KEPT
    assert fitted == [16]
    # No edit repairs a tree that splits on a feature that the table lacks, and no fold is fitted.
    assert rebuild(made, Split("depth", 1, Leaf(made.configs[2]), Leaf(made.configs[0])), fit).why_fresh
    assert fitted == [16, 16]


def test_fresh_trees_that_win(made: Problem) -> None:
    """The previous leaves are mixed: any one config in place of one loses somewhere, a new split does not."""
    cost = np.where(np.arange(16)[:, None] % 2 == [[0, 1, 2]], 0, 400_000)
    mixed = Problem(**{**vars(made), "cost": cost})
    number = {scenario: row for row, scenario in enumerate(mixed.scenarios)}

    def fit(known: Problem) -> Tree:
        assert set(known.scenarios) <= set(number)
        tree: Tree = Leaf(mixed.configs[1])
        for row in range(15, 0, -1):
            rows, columns = mixed.column("rows")[row - 1], mixed.column("columns")[row - 1]
            below = Split("columns", int(columns), Leaf(mixed.configs[(row - 1) % 2]), tree)
            tree = Split("rows", int(rows), below, tree)
        return tree

    found = rebuild(mixed, Leaf(mixed.configs[0]), fit)
    assert found.origin is TreeOrigin.FRESH and found.tree == found.fresh
    assert found.why_fresh is not None and "by this table" in found.why_fresh


def test_scenarios_count_as_those_of_the_previous_table_unless_said_otherwise(made: Problem) -> None:
    """The previous tree was never timed in half of the scenarios."""
    is_low = made.column("rows")[:, None] <= 8
    cost = np.where(is_low, [[UNTIMED, 0, UNTIMED]], [[0, 400_000, 400_000]])
    partly = Problem(**{**vars(made), "cost": cost})
    narrow, medium = Leaf(made.configs[0]), Leaf(made.configs[1])

    def fit(known: Problem) -> Tree:
        return Split("rows", 8, medium, narrow)

    assert rebuild(partly, narrow, fit).origin is TreeOrigin.KEPT
    assert rebuild(partly, narrow, fit, other_scenarios=True).origin is TreeOrigin.FRESH
