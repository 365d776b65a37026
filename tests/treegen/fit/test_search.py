"""The search for the tree of a regime, between greedy growth and the best tree of all."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples
from treegen_training_sets import least_total, reordered, training_sets

from treegen.fit.search import Leaf, RowTree, Training, count_leaves, grow, local_search


def _depth(tree: RowTree) -> int:
    return 0 if isinstance(tree, Leaf) else 1 + max(_depth(tree.low), _depth(tree.high))


def _greedy(case: Training) -> RowTree:
    return grow(case, case.best_cells(case.everywhere))


@examples(200)
@given(training_sets(classes=1))
def test_it_lies_between_greedy_growth_and_the_best_tree(case: Training) -> None:
    total = case.total(local_search(case))
    assert least_total(case) <= total <= case.total(_greedy(case))


def test_it_mostly_finds_the_best_tree_where_greedy_growth_does_not() -> None:
    rng, found, greedy = random.Random(3), 0, 0
    for _ in range(60):
        case = _random_case(rng)
        best = least_total(case)
        found += case.total(local_search(case)) == best
        greedy += case.total(_greedy(case)) == best
    assert found > max(30, greedy)


def _random_case(rng: random.Random) -> Training:
    sides = [[rng.random() < 0.5 for _ in range(12)] for _ in range(5)]
    loss = [[rng.randint(0, 9) for _ in range(3)] for _ in range(12)]
    return Training(
        np.array(sides), np.array(loss, dtype=np.float64), np.zeros(12, dtype=np.int64), 1, 1, 2, 4, 1
    )


@examples(150)
@given(training_sets())
def test_limits_hold_and_no_tree_is_better_than_the_best(case: Training) -> None:
    tree = local_search(case)
    assert _depth(tree) <= case.max_depth and count_leaves(tree) <= case.max_leaves
    assert case.total(tree) >= least_total(case)


@examples(100)
@given(training_sets(), st.randoms(use_true_random=False))
def test_the_order_of_scenarios_changes_nothing(case: Training, rng: random.Random) -> None:
    order = list(range(len(case.loss)))
    rng.shuffle(order)
    assert local_search(reordered(case, order)) == local_search(case)
