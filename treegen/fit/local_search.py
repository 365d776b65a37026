"""Improve a tree until neither another split at a node nor a split at another place lowers its total.

Every step lowers the total loss over all rows. So, unlike growth, this search sees what a split saves
together with the subtrees below it.
"""

from __future__ import annotations

import numpy as np

from treegen.fit.growth import grow
from treegen.fit.index_tree import IndexTree, NodePath, replaced
from treegen.fit.training_set import Rows, TrainingSet

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
