"""Fewer distinct configs: each one costs compile time and memory in production."""

from __future__ import annotations

import numpy as np

from treegen.fit.index_tree import IndexTree, replaced
from treegen.fit.training_set import TrainingSet


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
