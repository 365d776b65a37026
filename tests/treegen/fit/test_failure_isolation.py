"""isolate_failures: failing rows get a leaf of their own though it takes two splits, within the limits."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples
from treegen_training_sets import leaves_of, total, training_set, training_sets, trees

from treegen.fit.costs import FAILED
from treegen.fit.local_search import grow, isolate_failures
from treegen.fit.training_set import IndexTree, TrainingSet, count_leaves, height


def _line(failing: set[int], **limits: int) -> TrainingSet:
    """Twelve rows in a line; config 0 fails in some of them, config 1 in all others."""
    sides = [[row <= threshold for row in range(12)] for threshold in range(11)]
    return training_set(
        sides, [[FAILED, 5] if row in failing else [0, FAILED] for row in range(12)], **limits
    )


@pytest.mark.parametrize(("failing", "leaves"), [({6}, 3), ({5, 6, 7}, 3), ({2, 6}, 5), ({1, 5, 9}, 7)])
def test_failing_rows_between_others_are_parted_from_them(failing: set[int], leaves: int) -> None:
    case = _line(failing, depth=8)
    assert grow(case, 0) == 0, "no single split saves anything"
    tree = isolate_failures(case, 0)
    assert total(case, tree) == 5 * len(failing)
    assert count_leaves(tree) == leaves


@pytest.mark.parametrize("limits", [{"depth": 1}, {"leaves": 2}])
def test_a_tree_stays_where_the_limits_are_too_small(limits: dict[str, int]) -> None:
    assert isolate_failures(_line({6}, **limits), 0) == 0


def test_splits_that_save_less_give_way_where_the_limits_are_reached() -> None:
    sides = [[row <= threshold for row in range(6)] for threshold in range(5)]
    loss = [
        [0, 9, FAILED],
        [9, 0, FAILED],
        [0, 9, FAILED],
        [FAILED, FAILED, 7],
        [0, 9, FAILED],
        [0, 9, FAILED],
    ]
    case = training_set(sides, loss, depth=2, leaves=3)
    tree = isolate_failures(case, (0, 0, (1, 1, 0)))
    assert total(case, tree) == 16
    assert count_leaves(tree) == 3 and height(tree) == 2


@examples(150)
@given(training_sets(), st.data())
def test_the_total_never_rises_and_the_limits_hold(case: TrainingSet, data: st.DataObject) -> None:
    case = replace(case, min_rows=1)
    grown = grow(case, case.best_config(case.all_rows))
    for start in (grown, data.draw(trees(case))):
        tree = isolate_failures(case, start)
        assert total(case, tree) <= total(case, start)
        assert tree == start or count_leaves(tree) <= case.max_leaves
        assert height(tree) <= max(case.max_depth, height(start))
        if not (case.row_losses(start, case.all_rows) >= FAILED).any():
            assert tree == start


def _chains(case: TrainingSet, row: int) -> list[IndexTree]:
    """Every tree of two splits in a row with that row in the leaf below both."""
    configs = range(case.loss.shape[1])
    found: list[IndexTree] = []
    for first, second, inner, middle, outer in product(*2 * [range(len(case.is_low))], *3 * [configs]):
        below = (second, inner, middle) if case.is_low[second, row] else (second, middle, inner)
        found.append((first, below, outer) if case.is_low[first, row] else (first, outer, below))
    return found


@examples(60)
@given(training_sets(rows=7, splits=4))
def test_no_other_two_splits_around_a_failing_row_are_cheaper(case: TrainingSet) -> None:
    """From a single leaf with one failing row, by comparison with trying all."""
    case = replace(case, min_rows=1, max_depth=2, max_leaves=3)
    for config in range(case.loss.shape[1]):
        (failing,) = (case.loss[:, config] >= FAILED).nonzero()
        if len(failing) == 1:
            found = isolate_failures(case, config)
            filled = [
                tree for tree in _chains(case, int(failing[0])) if all(r for _, r in leaves_of(case, tree))
            ]
            assert total(case, found) <= min(
                (total(case, tree) for tree in filled), default=total(case, found)
            )
