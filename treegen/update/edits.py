"""Local edits of a tree: another config for a leaf, a split dropped. Noise alone makes none."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT, UNTIMED
from treegen.core.tree import Leaf, Split, Tree, leaves, size
from treegen.fit.costs import ChoiceCosts, CostDrop, is_significant
from treegen.passes.simplify import simplify

WORTH = round(math.log(1.005) * UNIT)
"""What a change must save on average, in cost steps: 0.5% of the time. Less is not worth another module."""

Z_EDIT = 3.0
"""Standard deviations of noise that an edit must save: P = 0.0013. One edit per leaf and three per split are
tried, about sixty for 16 leaves. So noise alone makes one in 8 of a hundred builds at most (Bonferroni)."""

Z_CONFIGS = 4.5
"""Standard errors, by the noise of the repeats alone, that an edit must save: P = 3e-6. A leaf gets the best
of all configs, so that thousands of leaves with configs are tried."""

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EditedTree:
    tree: Tree
    leaves: int  # leaves that got another config
    splits: int  # splits that were dropped


def repair(costs: ChoiceCosts, tree: Tree) -> EditedTree:
    """Replace configs that cannot stay, whatever that costs.

    They are the configs that the table lacks or never timed, and those that failed or are forbidden in one of
    their leaf's scenarios. Such a leaf gets the best config of its scenarios. If no scenario reaches such a
    leaf, its split is dropped.
    """
    cost = costs.problem.cost
    usable = {config for config, column in costs.column.items() if (cost[:, column] < UNTIMED).any()}
    changed = 0

    def repaired(node: Tree, rows: Rows) -> Tree | None:
        nonlocal changed
        if isinstance(node, Leaf):
            if node.config in usable and not costs.fails(node, rows):
                return node
            if not len(rows):
                return None
            changed += 1
            return costs.best_leaf(rows)
        is_low = costs.problem.column(node.feature)[rows] <= node.threshold
        low, high = repaired(node.low, rows[is_low]), repaired(node.high, rows[~is_low])
        if low is None or high is None:
            return low or high
        return Split(node.feature, node.threshold, low, high, node.gap)

    result = repaired(tree, costs.all_rows)
    assert result is not None  # some scenario reaches some leaf
    result = simplify(result)
    return EditedTree(result, changed, size(tree) - size(result))


def edit(costs: ChoiceCosts, tree: Tree) -> EditedTree:
    """Make the significant edits, first the one that saves most, until none is left.

    A leaf may get the best config of its scenarios. A split may give way to either of its sides or to such a
    leaf. This ends, as every edit lowers the number of leaves, or of leaves that lack their best config.
    """
    before, changed = size(tree), 0
    while True:
        now = _price(costs, tree)
        options = _edits(costs, tree, costs.all_rows)
        priced = [(saved + now - _price(costs, other), other) for saved, other in options]
        gain, other = max(priced, key=lambda option: option[0], default=(0, tree))
        if gain <= 0:
            return EditedTree(tree, changed, before - size(tree))
        other = simplify(other)
        changed += size(other) == size(tree)
        tree = other


def _edits(costs: ChoiceCosts, tree: Tree, rows: Rows) -> Iterator[tuple[int, Tree]]:
    """Every tree that is one significant edit away, with the loss that it saves."""
    best = costs.best_leaf(rows) if len(rows) else tree
    for other in (tree.low, tree.high, best) if isinstance(tree, Split) else (best,):
        drop = costs.drop(tree, other, rows)
        if is_significant(drop, Z_EDIT, _least(costs, drop)) and not costs.fails(other, rows):
            yield int(drop.loss.sum()), other
    if isinstance(tree, Split):
        is_low = costs.problem.column(tree.feature)[rows] <= tree.threshold
        for saved, low in _edits(costs, tree.low, rows[is_low]):
            yield saved, Split(tree.feature, tree.threshold, low, tree.high, tree.gap)
        for saved, high in _edits(costs, tree.high, rows[~is_low]):
            yield saved, Split(tree.feature, tree.threshold, tree.low, high, tree.gap)


def _least(costs: ChoiceCosts, drop: CostDrop) -> int:
    """The mean that a drop must exceed: what is worth an edit, and what noise makes of the best of many."""
    error = costs.noise.difference / math.sqrt(max(1, len(np.unique(drop.group))))
    return max(WORTH, round(Z_CONFIGS * error))


def _price(costs: ChoiceCosts, tree: Tree) -> int:
    """The budget's price of a tree's leaves and distinct configs, in steps of loss over all scenarios."""
    budget = costs.problem.kernel.budget
    configs = len({leaf.config for leaf, _ in leaves(tree)})
    share = budget.leaf_price * size(tree) + budget.config_price * configs
    return round(share * UNIT * len(costs.cost))
