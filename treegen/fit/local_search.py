"""Grow a tree best-first, move its splits, drop configs that save little, isolate scenarios that fail."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treegen.fit.costs import FAILED
from treegen.fit.training_set import IndexTree, NodePath, Rows, TrainingSet, count_leaves, replaced


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


_ROUNDS = 40


def local_search(training: TrainingSet, tree: IndexTree) -> IndexTree:
    """Grow a tree, then move splits from where they save least to where they save most, until none helps."""
    tree = alternate(training, grow(training, alternate(training, tree)))
    for _ in range(_ROUNDS):
        for smaller in _one_side_fewer(training, tree):
            other = alternate(training, grow(training, smaller))
            if training.total(other) < training.total(tree):
                tree = other
                break
        else:
            break
    return tree


def alternate(training: TrainingSet, tree: IndexTree) -> IndexTree:
    """Choose each node's split anew, given the subtrees below it, and each leaf's config, until stable.

    This is tree alternating optimisation (Carreira-Perpiñán, Tavallali, NeurIPS 2018) for axis-aligned
    splits: with both subtrees fixed, each row's loss on either side is known.
    """
    while True:
        other = _reoptimised(training, tree, training.all_rows)
        if training.total(other) >= training.total(tree):
            return tree
        tree = other


def _reoptimised(training: TrainingSet, tree: IndexTree, rows: Rows) -> IndexTree:
    key = "tree", tree, training.key(rows)
    if key not in training.memo:
        training.memo[key] = _once_reoptimised(training, tree, rows)
    found: IndexTree = training.memo[key]
    return found


def _once_reoptimised(training: TrainingSet, tree: IndexTree, rows: Rows) -> IndexTree:
    if not isinstance(tree, tuple):
        return training.best_config(rows) if len(rows) else tree
    split, low, high = tree
    if len(rows):
        difference = training.row_losses(low, rows) - training.row_losses(high, rows)
        loss = training.low_sums(difference, rows)
        loss[training.too_small(training.low_sums(np.ones(len(rows)), rows), len(rows))] = np.inf
        best = int(loss.argmin())
        if loss[best] < loss[split]:
            split = best
    low_rows, high_rows = training.divide(split, rows)
    return split, _reoptimised(training, low, low_rows), _reoptimised(training, high, high_rows)


def _one_side_fewer(training: TrainingSet, tree: IndexTree) -> list[IndexTree]:
    """All trees in which one side of a split is removed and the other takes its rows; the best first."""
    candidates: list[tuple[float, NodePath, IndexTree]] = []
    for path, node, rows in training.nodes(tree):
        if isinstance(node, tuple):
            before = training.row_losses(node, rows).sum()
            for left in node[1:]:
                after = training.row_losses(left, rows).sum()
                candidates.append((float(after - before), path, replaced(tree, path, left)))
    return [smaller for _, _, smaller in sorted(candidates, key=lambda entry: entry[:2])]


def prune_configs(training: TrainingSet, tree: IndexTree, price: int) -> IndexTree:
    """The tree whose leaves hold the best configs of a set in which every config saves its price.

    The set starts as each leaf's best config. The config whose removal costs least is removed, again and
    again, while that costs at most `price`, in steps of `training.loss`.
    """
    leaves = {path: rows for path, node, rows in training.nodes(tree) if not isinstance(node, tuple)}
    sums = np.array([training.loss[rows].sum(axis=0) for rows in leaves.values()])  # [leaves, configs]
    kept = sorted({int(row.argmin()) for row in sums})
    while len(kept) > 1:
        now = sums[:, kept].min(axis=1).sum()
        without = [sums[:, [c for c in kept if c != removed]].min(axis=1).sum() for removed in kept]
        cheapest = int(np.argmin(without))
        if without[cheapest] - now > price:
            break
        del kept[cheapest]
    for path, row in zip(leaves, sums, strict=True):
        tree = replaced(tree, path, kept[int(row[kept].argmin())])
    return tree


def isolate_failures(training: TrainingSet, tree: IndexTree) -> IndexTree:
    """The tree with subtrees of two splits where these lower its total by avoiding failures.

    A node above a failing row gives way to three leaves: one around the failing row, however small, and two
    for the rest. The cheapest tree within the budget is taken, again and again until none is cheaper.
    """
    while True:
        options = [tree]
        for path, _, rows in training.nodes(tree):
            failing = rows[training.row_losses(tree, rows) >= FAILED]
            if len(failing) and len(path) + 2 <= training.max_depth:
                options += [
                    replaced(tree, path, subtree) for subtree in _isolating(training, rows, failing[0])
                ]
        allowed = [option for option in options if count_leaves(option) <= training.max_leaves]
        best = min(allowed, key=training.total, default=tree)
        if training.total(best) >= training.total(tree):
            return tree
        tree = best


def _isolating(training: TrainingSet, rows: Rows, failing: int) -> list[IndexTree]:
    """The best subtree of two splits for some rows; one leaf holds what both keep with the failing row.

    Empty if no two splits leave rows in all three leaves.
    """
    loss = training.loss[rows]
    near = (training.is_low[:, rows] == training.is_low[:, [failing]]).astype(np.float64)  # [splits, rows]
    count = near @ near.T  # [first split, second split] rows that both keep with the failing row
    near_loss = near @ loss  # [splits, configs]
    inner = np.full(count.shape, np.inf)
    middle = np.full(count.shape, np.inf)
    for config in range(loss.shape[1]):
        both = (near * loss[:, config]) @ near.T
        inner, middle = np.minimum(inner, both), np.minimum(middle, near_loss[:, [config]] - both)
    total = inner + middle + (loss.sum(axis=0) - near_loss).min(axis=1)[:, None]
    total[(count == count.diagonal()[:, None]) | (count.diagonal()[:, None] == len(rows))] = np.inf
    if not np.isfinite(total).any():
        return []
    first, second = map(int, np.unravel_index(total.argmin(), total.shape))

    def subtree(split: int, near_side: IndexTree, far_rows: Rows) -> IndexTree:
        sides = near_side, training.best_config(far_rows)
        low, high = sides if training.low_mask[split, failing] else sides[::-1]
        return split, low, high

    first_near, second_near = near[first] > 0, near[second] > 0
    leaf = training.best_config(rows[first_near & second_near])
    return [subtree(first, subtree(second, leaf, rows[first_near & ~second_near]), rows[~first_near])]
