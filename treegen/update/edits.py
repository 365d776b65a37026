"""Local edits of a tree: another config for a leaf, a split left out. None is made for noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT, UNMEASURED
from treegen.core.tree import Leaf, Split, Tree, leaves, size
from treegen.fit.choice_costs import ChoiceCosts
from treegen.fit.significance import pays
from treegen.passes.simplify import simplify

CERTAIN = 3.0
"""Standard deviations of noise that an edit must gain: P = 0.0013. One edit a leaf and three a split are
tried, of 16 leaves about sixty, so noise alone makes one in 8 of a hundred builds at most (Bonferroni)."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Edited:
    """leaves: how many leaves got another config; splits: how many splits were left out."""

    tree: Tree
    leaves: int
    splits: int


def repair(evidence: ChoiceCosts, tree: Tree) -> Edited:
    """Mend what cannot stay whatever it costs.

    A leaf whose config the table does not hold, never timed, or holds as failed or forbidden in one of the
    leaf's scenarios gets the best config of these. If no scenario reaches such a leaf, its split goes.
    """
    cost = evidence.problem.cost
    usable = {c for c, column in evidence.column.items() if (cost[:, column] < UNMEASURED).any()}
    changed = 0

    def mended(node: Tree, rows: Rows) -> Tree | None:
        nonlocal changed
        if isinstance(node, Leaf):
            if node.config in usable and not evidence.fails(node, rows):
                return node
            if not len(rows):
                return None
            changed += 1
            return evidence.best_leaf(rows)
        below = evidence.problem.column(node.feature)[rows] <= node.threshold
        low, high = mended(node.low, rows[below]), mended(node.high, rows[~below])
        if low is None or high is None:
            return low or high
        return Split(node.feature, node.threshold, low, high, node.gap)

    result = mended(tree, evidence.every)
    assert result is not None  # some scenario reaches some leaf
    result = simplify(result)
    return Edited(result, changed, size(tree) - size(result))


def edit(evidence: ChoiceCosts, tree: Tree) -> Edited:
    """Make the edits that pay more than noise explains, first the one that saves most, until none is left.

    A leaf may get the best config of its scenarios; a split may give way to either of its sides or to such
    a leaf. Ends, as every edit lowers the number of leaves, or of leaves that lack their best config.
    """
    before, changed = size(tree), 0
    while True:
        now = _price(evidence, tree)
        found = _edits(evidence, tree, evidence.every)
        priced = [(saved + now - _price(evidence, other), other) for saved, other in found]
        gain, other = max(priced, key=lambda option: option[0], default=(0, tree))
        if gain <= 0:
            return Edited(tree, changed, before - size(tree))
        other = simplify(other)
        changed += size(other) == size(tree)
        tree = other


def _edits(evidence: ChoiceCosts, tree: Tree, rows: Rows) -> Iterator[tuple[int, Tree]]:
    """Every tree that is one significant edit away, with the loss that it saves."""
    best = evidence.best_leaf(rows) if len(rows) else tree
    for other in (tree.low, tree.high, best) if isinstance(tree, Split) else (best,):
        fall = evidence.fall(tree, other, rows)
        if pays(fall, evidence.noise, CERTAIN) and not evidence.fails(other, rows):
            yield int(fall.loss.sum()), other
    if isinstance(tree, Split):
        below = evidence.problem.column(tree.feature)[rows] <= tree.threshold
        for saved, low in _edits(evidence, tree.low, rows[below]):
            yield saved, Split(tree.feature, tree.threshold, low, tree.high, tree.gap)
        for saved, high in _edits(evidence, tree.high, rows[~below]):
            yield saved, Split(tree.feature, tree.threshold, tree.low, high, tree.gap)


def _price(evidence: ChoiceCosts, tree: Tree) -> int:
    """What its leaves and distinct configs cost a tree by the budget, in steps of loss over all scenarios."""
    budget = evidence.problem.kernel.budget
    configs = len({leaf.config for leaf, _ in leaves(tree)})
    share = budget.leaf_price * size(tree) + budget.config_price * configs
    return round(share * UNIT * len(evidence.cost))
