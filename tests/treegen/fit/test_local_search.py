"""alternate, local_search: the total never rises, the limits hold, and the result is near the optimum."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from optimal_trees import optimum
from treegen_strategies import examples
from treegen_training_sets import (
    allowed,
    leaves_of,
    reordered,
    total,
    training_set,
    training_sets,
    trees,
)

from treegen.fit.local_search import alternate, grow, local_search
from treegen.fit.training_set import IndexTree, TrainingSet


def _searched(case: TrainingSet) -> IndexTree:
    return local_search(case, case.best_config(case.all_rows))


def _form(tree: IndexTree) -> object:
    return (_form(tree[1]), _form(tree[2])) if isinstance(tree, tuple) else 0


@examples(150)
@given(training_sets(), st.data())
def test_alternating_keeps_the_form_and_ends_where_no_other_split_of_the_root_is_better(
    case: TrainingSet, data: st.DataObject
) -> None:
    start = data.draw(trees(case))
    assert case.total(start) == total(case, start)
    tree = alternate(case, start)
    assert _form(tree) == _form(start)
    assert total(case, tree) <= total(case, start)
    assert alternate(case, tree) == tree
    for split in range(len(case.is_low) if isinstance(tree, tuple) else 0):
        low = int(case.is_low[split].sum())
        if isinstance(tree, tuple) and min(low, len(case.loss) - low) >= case.min_rows:
            assert total(case, (split, *tree[1:])) >= total(case, tree)


def test_alternating_finds_a_root_that_growth_could_not_see() -> None:
    """Split 0 saves most alone; with split 1 at the root, both sides can be perfect."""
    sides = [[1, 1, 1, 0, 0, 0], [1, 1, 0, 1, 0, 0]]
    loss = [[0, 9], [0, 9], [9, 0], [0, 9], [9, 0], [9, 0]]
    assert alternate(training_set(sides, loss), (0, 0, 1)) == (1, 0, 1)


@examples(200)
@given(training_sets(), st.data())
def test_a_search_keeps_the_limits_and_lies_between_growth_and_the_optimum(
    case: TrainingSet, data: st.DataObject
) -> None:
    root = case.best_config(case.all_rows)
    searched = _searched(case)
    assert optimum(case) <= total(case, searched) <= total(case, grow(case, root)) <= total(case, root)
    assert allowed(case, searched)
    for config, rows in leaves_of(case, searched):
        sums = case.loss[rows].sum(axis=0)
        assert sums[config] == sums.min()
    order = data.draw(st.permutations(range(len(case.loss))))
    assert _searched(reordered(case, order)) == searched


def _random(seed: int) -> TrainingSet:
    """40 rows in two features with noisy losses."""
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 8, (40, 2))
    sides = [features[:, f] <= t for f in range(2) for t in range(7)]
    band = (features @ rng.integers(1, 4, (2, 1)) // 8).ravel()
    loss = 20 * (np.arange(4) != band[:, None] % 4) + rng.integers(0, 12, (40, 4))
    return training_set(sides, loss, depth=3, leaves=6)


def test_searches_come_near_the_optimum() -> None:
    """In each block of 60 seeds up to 240, the search finds 21 to 34 optima, and growth 1 to 6."""
    cases = [_random(seed) for seed in range(60)]
    best = [optimum(case) for case in cases]
    grown = [total(case, grow(case, case.best_config(case.all_rows))) for case in cases]
    searched = [total(case, _searched(case)) for case in cases]
    assert sum(found == least for found, least in zip(searched, best, strict=True)) >= 20
    assert sum(searched) < 1.07 * sum(best) < 1.14 * sum(best) < sum(grown)
