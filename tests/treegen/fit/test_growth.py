"""grow: best-first, within the limits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from treegen_samples import allowed, leaves_of, price, sample, samples
from treegen_strategies import examples

from treegen.fit.growth import grow, replaced
from treegen.fit.index_tree import IndexTree, count_leaves
from treegen.fit.training_set import TrainingSet


def _best(case: TrainingSet, rows: list[int]) -> int:
    """The first config that loses least in these rows."""
    sums = [sum(int(case.loss[row, config]) for row in rows) for config in range(case.loss.shape[1])]
    return sums.index(min(sums))


def _lost(case: TrainingSet, rows: list[int]) -> int:
    return sum(int(case.loss[row, _best(case, rows)]) for row in rows)


def _splits(case: TrainingSet, shape: IndexTree) -> list[tuple[int, IndexTree]]:
    """What each further split saves, and the tree that it makes; leaves are those of `shape`."""
    found: list[tuple[int, IndexTree]] = []

    def visit(node: IndexTree, rows: list[int], way: tuple[int, ...]) -> None:
        if isinstance(node, tuple):
            yes = [row for row in rows if case.answers[node[0], row]]
            visit(node[1], yes, (*way, 1))
            visit(node[2], [row for row in rows if row not in yes], (*way, 2))
            return
        for question in range(len(case.answers) if len(way) < case.max_depth else 0):
            yes = [row for row in rows if case.answers[question, row]]
            no = [row for row in rows if row not in yes]
            if min(len(yes), len(no)) >= case.least:
                saved = _lost(case, rows) - _lost(case, yes) - _lost(case, no)
                part = question, _best(case, yes), _best(case, no)
                found.append((saved, replaced(shape, way, part)))

    visit(shape, list(range(len(case.loss))), ())
    return found


@examples(150)
@given(samples())
def test_each_step_takes_a_split_that_saves_most(case: TrainingSet) -> None:
    shape: IndexTree = _best(case, list(range(len(case.loss))))
    grown = grow(case, shape)
    for leaves in range(2, count_leaves(grown) + 1):
        step = grow(
            sample(case.answers, case.loss, least=case.least, depth=case.max_depth, leaves=leaves), shape
        )
        splits = _splits(case, shape)
        most = max(saved for saved, _ in splits)
        assert most > case.leaf_price and (most, step) in splits
        shape = step
    assert shape == grown
    left = _splits(case, grown) if count_leaves(grown) < case.max_leaves else []
    assert all(saved <= case.leaf_price for saved, _ in left)


@examples(150)
@given(samples())
def test_the_limits_hold_and_every_leaf_has_its_best_config(case: TrainingSet) -> None:
    root = _best(case, list(range(len(case.loss))))
    grown = grow(case, root)
    assert allowed(case, grown) and price(case, grown) <= price(case, root)
    assert all(config == _best(case, rows) for config, rows in leaves_of(case, grown))


@examples(80)
@given(samples(), st.data())
def test_the_order_of_rows_changes_nothing(case: TrainingSet, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(case.loss))))
    turned = sample(
        case.answers[:, order],
        case.loss[order],
        least=case.least,
        depth=case.max_depth,
        leaves=case.max_leaves,
        price=case.leaf_price,
    )
    assert grow(case, 0) == grow(turned, 0)


def test_the_leaf_that_loses_most_is_split_first() -> None:
    says = [[1, 1, 0, 0], [1, 0, 1, 0]]
    for heavy in (0, 1):
        small, large = ([0, 9, 99, 99], [9, 0, 99, 99]), ([99, 99, 0, 80], [99, 99, 80, 0])
        loss = [*(small, large)[heavy], *(large, small)[heavy]]
        three = grow(sample(says, loss, leaves=3), 1)
        assert isinstance(three, tuple) and three[0] == 0
        assert isinstance(three[2 - heavy], tuple)
        assert not isinstance(three[1 + heavy], tuple)


def test_a_split_that_pays_no_more_than_its_leaf_is_not_made() -> None:
    assert grow(sample([[1, 0]], [[0, 5], [5, 0]], price=5), 0) == 0
    assert grow(sample([[1, 0]], [[0, 5], [5, 0]], price=4), 0) == (0, 0, 1)


def test_a_tree_that_is_there_is_only_added_to() -> None:
    case = sample([[1, 1, 0, 0], [1, 0, 1, 0]], np.eye(4) * -9 + 9)
    assert grow(case, (1, 0, 3)) == (1, (0, 0, 2), (0, 1, 3))
