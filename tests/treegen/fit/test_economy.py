"""prune_configs: configs go one by one, that which is missed least first, while none is missed much."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_samples import leaves_of, sample, samples, shapes
from treegen_strategies import examples

from treegen.fit.config_pruning import prune_configs
from treegen.fit.index_tree import IndexTree
from treegen.fit.training_set import TrainingSet

PRICES = st.sampled_from([0, 1, 5, 20, 1 << 40])


def _asked(shape: IndexTree) -> object:
    return (shape[0], _asked(shape[1]), _asked(shape[2])) if isinstance(shape, tuple) else None


def _lost(case: TrainingSet, shape: IndexTree, configs: set[int]) -> int:
    """What all rows lose if every leaf takes the best of these configs."""
    sums = [case.loss[rows].sum(axis=0) for _, rows in leaves_of(case, shape)]
    return sum(min(int(row[config]) for config in configs) for row in sums)


def _own(case: TrainingSet, shape: IndexTree) -> set[int]:
    """Each leaf's best config."""
    return {int(case.loss[rows].sum(axis=0).argmin()) for _, rows in leaves_of(case, shape)}


@examples(200)
@given(samples(), st.data(), PRICES)
def test_configs_leave_as_the_rule_says(case: TrainingSet, data: st.DataObject, price: int) -> None:
    shape = data.draw(shapes(case))
    kept = _own(case, shape)
    while len(kept) > 1:
        gone = min(sorted(kept), key=lambda config: _lost(case, shape, kept - {config}))
        if _lost(case, shape, kept - {gone}) - _lost(case, shape, kept) > price:
            break
        kept.remove(gone)
    found = prune_configs(case, shape, price)
    assert _asked(found) == _asked(shape)
    used = list(leaves_of(case, found))
    assert {config for config, _ in used} <= kept
    for config, rows in used:
        sums = case.loss[rows].sum(axis=0)
        assert sums[config] == min(sums[c] for c in kept)


@examples(200)
@given(samples(), st.data())
def test_at_no_price_nothing_is_lost(case: TrainingSet, data: st.DataObject) -> None:
    shape = data.draw(shapes(case))
    found = prune_configs(case, shape, 0)
    best = sum(int(case.loss[rows].sum(axis=0).min()) for _, rows in leaves_of(case, shape))
    assert sum(int(case.loss[rows, config].sum()) for config, rows in leaves_of(case, found)) == best


@examples(200)
@given(samples(), st.data(), PRICES)
def test_no_loss_exceeds_the_price_of_the_configs_that_left(
    case: TrainingSet, data: st.DataObject, price: int
) -> None:
    shape = data.draw(shapes(case))
    own = _own(case, shape)
    used = {config for config, _ in leaves_of(case, prune_configs(case, shape, price))}
    lost = _lost(case, shape, used) - _lost(case, shape, own)
    assert lost <= price * (len(own) - 1)


@pytest.mark.parametrize("seed", range(10))
def test_the_rule_comes_near_the_best_of_all_subsets(seed: int) -> None:
    """Against every subset of six configs, with the price paid for each."""
    rng = np.random.default_rng(seed)
    loss = rng.integers(0, 30, (8, 6))
    says = [[row >> bit & 1 for row in range(8)] for bit in range(3)]

    def leaf(row: int) -> int:
        return int(loss[row].argmin())

    halves = [(1, (0, leaf(k + 3), leaf(k + 2)), (0, leaf(k + 1), leaf(k))) for k in (4, 0)]
    case, shape = sample(says, loss), (2, *halves)
    own = _own(case, shape)
    for price in (0, 3, 10, 40, 1000):
        best = min(
            _lost(case, shape, set(some)) + price * len(some)
            for count in range(1, len(own) + 1)
            for some in combinations(sorted(own), count)
        )
        used = {config for config, _ in leaves_of(case, prune_configs(case, shape, price))}
        assert best <= _lost(case, shape, used) + price * len(used) <= best + max(price, 6)


def test_a_config_that_alone_does_not_fail_stays_at_any_price() -> None:
    case = sample([[1, 0]], [[0, 1 << 36], [1 << 36, 0]])
    assert prune_configs(case, (0, 0, 1), 1 << 30) == (0, 0, 1)
    assert prune_configs(sample([[1, 0]], [[0, 9], [9, 0]]), (0, 0, 1), 9) == (0, 1, 1)
    assert prune_configs(sample([[1, 0]], [[0, 9], [9, 0]]), (0, 0, 1), 8) == (0, 0, 1)
