"""Small inputs of the search for a tree, without a table behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from treegen.fit.training_set import IndexTree, TrainingSet, count_leaves, height

LOSSES = st.integers(0, 9) | st.integers(0, 1) | st.sampled_from([0, 1 << 36])


def training_set(
    is_low: object, loss: object, *, min_rows: int = 1, depth: int = 4, leaves: int = 8, price: int = 0
) -> TrainingSet:
    """is_low: [splits, rows]; loss: [rows, configs]."""
    loss = np.array(loss, dtype=np.float64)
    sides = np.array(is_low, dtype=np.float64).reshape(-1, len(loss))
    return TrainingSet(sides, loss, min_rows, depth, leaves, price)


@st.composite
def training_sets(draw: st.DrawFn, rows: int = 10, splits: int = 5) -> TrainingSet:
    """Splits may repeat or have an empty side, rows may be on the same sides, losses may tie."""
    count, configs = draw(st.integers(1, rows)), draw(st.integers(1, 4))
    sides = st.lists(st.lists(st.booleans(), min_size=count, max_size=count), min_size=1, max_size=splits)
    row = st.lists(LOSSES, min_size=configs, max_size=configs)
    return training_set(
        draw(sides),
        draw(st.lists(row, min_size=count, max_size=count)),
        min_rows=draw(st.integers(1, 3)),
        depth=draw(st.integers(0, 3)),
        leaves=draw(st.integers(1, 6)),
        price=draw(st.sampled_from([0, 0, 1, 3])),
    )


def reordered(case: TrainingSet, order: list[int]) -> TrainingSet:
    """The same training set with its rows in another order."""
    return replace(case, is_low=case.is_low[:, order], loss=case.loss[order])


def trees(case: TrainingSet) -> st.SearchStrategy[IndexTree]:
    """Any tree over the splits and configs of a training set, whatever its limits."""
    config, split = (st.integers(0, count - 1) for count in (case.loss.shape[1], len(case.is_low)))
    return st.recursive(config, lambda below: st.tuples(split, below, below), max_leaves=6)


def leaves_of(
    case: TrainingSet, tree: IndexTree, rows: list[int] | None = None
) -> Iterator[tuple[int, list[int]]]:
    """The config and the rows of every leaf, low sides first."""
    rows = list(range(len(case.loss))) if rows is None else rows
    if not isinstance(tree, tuple):
        yield tree, rows
        return
    low = [row for row in rows if case.is_low[tree[0], row]]
    yield from leaves_of(case, tree[1], low)
    yield from leaves_of(case, tree[2], [row for row in rows if row not in low])


def total(case: TrainingSet, tree: IndexTree) -> int:
    """The loss of all rows plus the price of all leaves."""
    lost = sum(int(case.loss[row, config]) for config, rows in leaves_of(case, tree) for row in rows)
    return lost + case.leaf_price * count_leaves(tree)


def allowed(case: TrainingSet, tree: IndexTree) -> bool:
    """Whether a tree keeps the limits of a training set."""
    large = all(len(rows) >= case.min_rows for _, rows in leaves_of(case, tree))
    within = height(tree) <= case.max_depth and count_leaves(tree) <= case.max_leaves
    return within and (large or not isinstance(tree, tuple))
