"""prune_configs: the config whose removal costs least goes first, while that costs at most the price."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples
from treegen_training_sets import leaves_of, training_set, training_sets, trees

from treegen.fit.local_search import prune_configs
from treegen.fit.training_set import IndexTree, TrainingSet


def _splits(tree: IndexTree) -> object:
    return (tree[0], _splits(tree[1]), _splits(tree[2])) if isinstance(tree, tuple) else None


def _lost(case: TrainingSet, tree: IndexTree, configs: set[int]) -> int:
    """The loss of all rows if every leaf takes the best of these configs."""
    sums = [case.loss[rows].sum(axis=0) for _, rows in leaves_of(case, tree)]
    return sum(min(int(row[config]) for config in configs) for row in sums)


def _best_configs(case: TrainingSet, tree: IndexTree) -> set[int]:
    return {int(case.loss[rows].sum(axis=0).argmin()) for _, rows in leaves_of(case, tree)}


@examples(250)
@given(training_sets(), st.data(), st.sampled_from([0, 1, 5, 20, 1 << 40]))
def test_configs_are_removed_by_the_rule(case: TrainingSet, data: st.DataObject, price: int) -> None:
    tree = data.draw(trees(case))
    best = _best_configs(case, tree)
    kept = set(best)
    while len(kept) > 1:
        removed = min(sorted(kept), key=lambda config: _lost(case, tree, kept - {config}))
        if _lost(case, tree, kept - {removed}) - _lost(case, tree, kept) > price:
            break
        kept.remove(removed)
    found = prune_configs(case, tree, price)
    assert _splits(found) == _splits(tree)
    leaves = list(leaves_of(case, found))
    assert {config for config, _ in leaves} <= kept
    for config, rows in leaves:
        sums = case.loss[rows].sum(axis=0)
        assert sums[config] == min(sums[c] for c in kept)
    lost = sum(int(case.loss[rows, config].sum()) for config, rows in leaves) - _lost(case, tree, best)
    assert 0 <= lost <= price * (len(best) - 1)


@pytest.mark.parametrize("seed", range(10))
def test_the_rule_comes_near_the_best_of_all_subsets(seed: int) -> None:
    """Against every subset of six configs, with the price paid for each."""
    loss = np.random.default_rng(seed).integers(0, 30, (8, 6))
    sides = [[row >> bit & 1 for row in range(8)] for bit in range(3)]

    def leaf(row: int) -> int:
        return int(loss[row].argmin())

    halves = [(1, (0, leaf(k + 3), leaf(k + 2)), (0, leaf(k + 1), leaf(k))) for k in (4, 0)]
    case, tree = training_set(sides, loss), (2, *halves)
    best_configs = _best_configs(case, tree)
    for price in (0, 3, 10, 40, 1000):
        least = min(
            _lost(case, tree, set(some)) + price * len(some)
            for count in range(1, len(best_configs) + 1)
            for some in combinations(sorted(best_configs), count)
        )
        left = {config for config, _ in leaves_of(case, prune_configs(case, tree, price))}
        assert least <= _lost(case, tree, left) + price * len(left) <= least + max(price, 6)


def test_a_config_without_which_a_leaf_fails_stays_at_any_price() -> None:
    case = training_set([[1, 0]], [[0, 1 << 36], [1 << 36, 0]])
    assert prune_configs(case, (0, 0, 1), 1 << 30) == (0, 0, 1)
    assert prune_configs(training_set([[1, 0]], [[0, 9], [9, 0]]), (0, 0, 1), 9) == (0, 1, 1)
    assert prune_configs(training_set([[1, 0]], [[0, 9], [9, 0]]), (0, 0, 1), 8) == (0, 0, 1)
