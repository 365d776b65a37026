"""grow: best-first, within the limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples
from treegen_training_sets import allowed, leaves_of, reordered, total, training_set, training_sets

from treegen.fit.local_search import grow
from treegen.fit.training_set import IndexTree, TrainingSet, count_leaves, replaced


def _best(case: TrainingSet, rows: list[int]) -> int:
    """The first config of least loss in these rows."""
    sums = [sum(int(case.loss[row, config]) for row in rows) for config in range(case.loss.shape[1])]
    return sums.index(min(sums))


def _lost(case: TrainingSet, rows: list[int]) -> int:
    return sum(int(case.loss[row, _best(case, rows)]) for row in rows)


def _further_splits(case: TrainingSet, tree: IndexTree) -> list[tuple[int, IndexTree]]:
    """What each further split of a leaf saves, and the tree that it makes."""
    found: list[tuple[int, IndexTree]] = []

    def visit(node: IndexTree, rows: list[int], path: tuple[int, ...]) -> None:
        candidates = range(len(case.is_low) if len(path) < case.max_depth else 0)
        for split in (node[0],) if isinstance(node, tuple) else candidates:
            low = [row for row in rows if case.is_low[split, row]]
            high = [row for row in rows if row not in low]
            if isinstance(node, tuple):
                visit(node[1], low, (*path, 1))
                visit(node[2], high, (*path, 2))
            elif min(len(low), len(high)) >= case.min_rows:
                subtree = split, _best(case, low), _best(case, high)
                saved = _lost(case, rows) - _lost(case, low) - _lost(case, high)
                found.append((saved, replaced(tree, path, subtree)))

    visit(tree, list(range(len(case.loss))), ())
    return found


@examples(150)
@given(training_sets())
def test_each_step_makes_a_split_that_saves_most(case: TrainingSet) -> None:
    tree: IndexTree = _best(case, list(range(len(case.loss))))
    grown = grow(case, tree)
    for leaves in range(2, count_leaves(grown) + 1):
        step = grow(replace(case, max_leaves=leaves, leaf_price=0), tree)
        options = _further_splits(case, tree)
        most = max(saved for saved, _ in options)
        assert most > case.leaf_price and (most, step) in options
        tree = step
    assert tree == grown
    left = _further_splits(case, grown) if count_leaves(grown) < case.max_leaves else []
    assert all(saved <= case.leaf_price for saved, _ in left)


@examples(150)
@given(training_sets(), st.data())
def test_limits_hold_leaves_are_best_and_the_order_of_rows_changes_nothing(
    case: TrainingSet, data: st.DataObject
) -> None:
    root = _best(case, list(range(len(case.loss))))
    grown = grow(case, root)
    assert allowed(case, grown) and total(case, grown) <= total(case, root)
    assert all(config == _best(case, rows) for config, rows in leaves_of(case, grown))
    order = data.draw(st.permutations(range(len(case.loss))))
    assert grow(reordered(case, order), root) == grown


def test_the_leaf_of_most_loss_is_split_first() -> None:
    sides = [[1, 1, 0, 0], [1, 0, 1, 0]]
    for heavy in (0, 1):
        small, large = ([0, 9, 99, 99], [9, 0, 99, 99]), ([99, 99, 0, 80], [99, 99, 80, 0])
        loss = [*(small, large)[heavy], *(large, small)[heavy]]
        three = grow(training_set(sides, loss, leaves=3), 1)
        assert isinstance(three, tuple) and three[0] == 0
        assert isinstance(three[2 - heavy], tuple)
        assert not isinstance(three[1 + heavy], tuple)


def test_a_split_that_saves_no_more_than_its_leaf_costs_is_not_made() -> None:
    assert grow(training_set([[1, 0]], [[0, 5], [5, 0]], price=5), 0) == 0
    assert grow(training_set([[1, 0]], [[0, 5], [5, 0]], price=4), 0) == (0, 0, 1)


def test_splits_are_only_added_to_a_given_tree() -> None:
    case = training_set([[1, 1, 0, 0], [1, 0, 1, 0]], np.eye(4) * -9 + 9)
    assert grow(case, (1, 0, 3)) == (1, (0, 0, 2), (0, 1, 3))
