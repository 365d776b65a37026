"""Give scenarios in which a leaf's config failed a leaf of their own.

Growth makes a split only if that split alone saves loss. Where a few failing scenarios lie between others,
two splits part them from the rest and the first one saves nothing.
"""

from __future__ import annotations

import numpy as np

from treegen.fit.index_tree import IndexTree, count_leaves, replaced
from treegen.fit.objective import FAILED
from treegen.fit.training_set import Rows, TrainingSet


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
