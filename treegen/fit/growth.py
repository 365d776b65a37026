"""Grow a tree best-first: make the split that saves most, anywhere in the tree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treegen.fit.index_tree import IndexTree, count_leaves, replaced
from treegen.fit.training_set import Rows, TrainingSet


def grow(training: TrainingSet, tree: IndexTree) -> IndexTree:
    """Split leaves of a tree while a split saves more than a leaf costs and the limits allow it."""
    leaves = {path: rows for path, node, rows in training.nodes(tree) if not isinstance(node, tuple)}
    options = {path: _best_split(training, rows, len(path)) for path, rows in leaves.items()}
    for _ in range(training.max_leaves - count_leaves(tree)):
        path = max(options, key=lambda path: options[path][0])  # of equals the leaf that was made first
        saved, subtree = options.pop(path)
        if saved <= training.leaf_price:
            break
        tree = replaced(tree, path, subtree)
        for step, rows in zip((1, 2), training.divide(subtree[0], leaves[path]), strict=True):
            leaves[*path, step] = rows
            options[*path, step] = _best_split(training, rows, len(path) + 1)
    return tree


def _best_split(training: TrainingSet, rows: Rows, depth: int) -> tuple[float, tuple[int, int, int]]:
    """Return what the best split of a leaf saves, and the subtree that it makes."""
    if depth >= training.max_depth or len(rows) < 2 * training.min_rows or not len(training.is_low):
        return -np.inf, (0, 0, 0)
    key = "split", training.key(rows)
    if key not in training.memo:
        saved = _saved(training, rows)
        split = int(saved.argmax())
        low, high = map(training.best_config, training.divide(split, rows))
        training.memo[key] = float(saved[split]), (split, low, high)
    found: tuple[float, tuple[int, int, int]] = training.memo[key]
    return found


def _saved(training: TrainingSet, rows: Rows) -> npt.NDArray[np.float64]:
    """[splits] the loss that each split saves; -inf where a side is too small."""
    loss = training.loss[rows]
    sums = loss.sum(axis=0)
    low = training.by_row[rows].T @ np.column_stack([loss, np.ones(len(rows))])
    low, count = low[:, :-1], low[:, -1]
    saved = sums.min() - low.min(axis=1) - (sums - low).min(axis=1)
    saved[training.too_small(count, len(rows))] = -np.inf
    return np.asarray(saved)
