"""Splits must pay more than noise explains."""

from __future__ import annotations

from treegen.fit.evidence import Evidence, Ints
from treegen.fit.significance import Fall, pays
from treegen.tree import Leaf, Split, Tree

EVIDENT = 1.0
"""Standard deviations that what is below a split must save over the best single config: one, as in the rule
of one standard error (Breiman et al., Classification and Regression Trees, 1984, section 3.4.3)."""


def prune(evidence: Evidence, tree: Tree) -> Tree:
    """The tree without what is below splits, from the leaves up, that save no more than noise explains.

    A split stays where one config for both sides would fail in some scenario.
    """
    return _pruned(evidence, tree, evidence.every)


def _pruned(evidence: Evidence, tree: Tree, rows: Ints) -> Tree:
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
    stays = evidence.fails(leaf, rows) or pays(_fall(evidence, leaf, below, rows), evidence.noise, EVIDENT)
    return below if stays else leaf


def _fall(evidence: Evidence, leaf: Leaf, below: Tree, rows: Ints) -> Fall:
    """What is not known counts as in fitting: a config that few scenarios tried is a reason to split."""
    old, new = evidence.column[leaf.config], evidence.choices(below, rows)
    return Fall(
        evidence.cost[rows, old] - evidence.cost[rows, new],
        evidence.loss[rows, old] - evidence.loss[rows, new],
        evidence.unit[rows],
    )
