"""Splits must pay more than noise explains."""

from __future__ import annotations

from treegen.core.tree import Leaf, Split, Tree
from treegen.fit.choice_costs import ChoiceCosts, Ints
from treegen.fit.significance import pays

EVIDENT = 1.0
"""Standard deviations that what is below a split must save over the best single config: one, as in the rule
of one standard error (Breiman et al., Classification and Regression Trees, 1984, section 3.4.3)."""


def prune_splits(evidence: ChoiceCosts, tree: Tree) -> Tree:
    """The tree without what is below splits, from the leaves up, that save no more than noise explains.

    A split stays where one config for both sides would fail in some scenario.
    """
    return _pruned(evidence, tree, evidence.every)


def _pruned(evidence: ChoiceCosts, tree: Tree, rows: Ints) -> Tree:
    if isinstance(tree, Leaf) or not len(rows):
        return tree
    low = evidence.problem.column(tree.feature)[rows] <= tree.threshold
    below = Split(
        tree.feature,
        tree.threshold,
        _pruned(evidence, tree.low, rows[low]),
        _pruned(evidence, tree.high, rows[~low]),
        tree.gap,
    )
    leaf = evidence.best_leaf(rows)
    # What is not known counts as in fitting: a config that few scenarios tried is a reason to split.
    fall = evidence.fall(leaf, below, rows, charge=True)
    stays = evidence.fails(leaf, rows) or pays(fall, evidence.noise, EVIDENT)
    return below if stays else leaf
