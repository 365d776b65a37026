"""Fewer splits: each must save more than noise explains."""

from __future__ import annotations

import math

import numpy as np

from treegen.core.tree import Leaf, Split, Tree, size
from treegen.fit.costs import ChoiceCosts, Ints, is_significant

Z_SPLIT = 1.0
"""The standard deviations that the subtree below a split must save over the best single config: one, as in
the one-standard-error rule (Breiman et al., Classification and Regression Trees, 1984, section 3.4.3)."""

Z_LEAVES = 2.0
"""The standard errors of noise, times the root of the number of leaves, that the subtree must save. On
equal configs, every leaf finds one that noise makes look better; their gains add up as the leaves do."""


def prune_splits(costs: ChoiceCosts, tree: Tree) -> Tree:
    """The tree without subtrees that save no more than noise explains, from the leaves up.

    A split stays where every single config would fail in some scenario.
    """
    return _pruned(costs, tree, costs.all_rows)


def _pruned(costs: ChoiceCosts, tree: Tree, rows: Ints) -> Tree:
    if isinstance(tree, Leaf) or not len(rows):
        return tree
    is_low = costs.problem.column(tree.feature)[rows] <= tree.threshold
    low, high = _pruned(costs, tree.low, rows[is_low]), _pruned(costs, tree.high, rows[~is_low])
    pruned = Split(tree.feature, tree.threshold, low, high, tree.gap)
    leaf = costs.best_leaf(rows)
    # Untimed choices are penalised as in fitting: a config that few scenarios tried is a reason to split.
    drop = costs.drop(leaf, pruned, rows, penalise_untimed=True)
    share = size(pruned) / max(1, len(np.unique(drop.group)))
    least = round(Z_LEAVES * costs.noise.difference * math.sqrt(share))
    return pruned if costs.fails(leaf, rows) or is_significant(drop, Z_SPLIT, least) else leaf
