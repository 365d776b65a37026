"""Improve a tree until neither another question at a split nor a split elsewhere helps.

Every step lowers the total loss on all rows, so unlike growth it sees what a split is worth once the tree
below it is there.
"""

from __future__ import annotations

import numpy as np

from treegen.fit.growth import Way, grow, replaced
from treegen.fit.index_tree import IndexTree, count_leaves, height
from treegen.fit.training_set import Rows, TrainingSet

_TRIED = 4  # leaves left out per round, those first that cost least
_ROUNDS = 12


def improve(sample: TrainingSet, shape: IndexTree) -> IndexTree:
    """Alternate, then move splits from where they save least to where they save most, until nothing helps."""
    shape = alternate(sample, grow(sample, alternate(sample, shape)))
    now = total(sample, shape)
    for _ in range(_ROUNDS):
        for smaller in _without_a_leaf(sample, shape)[:_TRIED]:
            other = alternate(sample, grow(sample, alternate(sample, smaller)))
            lost = total(sample, other)
            if lost < now and height(other) <= sample.max_depth:
                shape, now = other, lost
                break
        else:
            break
    return shape


def total(sample: TrainingSet, shape: IndexTree) -> float:
    """The loss of all rows, and the price of the leaves."""
    return float(sample.spent(shape, sample.every).sum()) + sample.leaf_price * count_leaves(shape)


def alternate(sample: TrainingSet, shape: IndexTree) -> IndexTree:
    """Choose each split's question anew, given the subtrees below it, and each leaf's config, until stable.

    Tree alternating optimization (Carreira-Perpiñán, Tavallali, NeurIPS 2018) for axis-aligned splits: given
    its subtrees, a split's best question follows from what each row would lose on either side.
    """
    now = total(sample, shape)
    while True:
        other = _pass(sample, shape, sample.every)
        lost = total(sample, other)
        if lost >= now:
            return shape
        shape, now = other, lost


def _pass(sample: TrainingSet, shape: IndexTree, rows: Rows) -> IndexTree:
    if not isinstance(shape, tuple):
        return sample.best_config(rows) if len(rows) else shape
    question, yes, no = shape
    if len(rows):
        differs = sample.spent(yes, rows) - sample.spent(no, rows)
        lost = differs @ sample.by_row[rows]
        lost[sample.too_small(rows)] = np.inf
        best = int(lost.argmin())
        if lost[best] < lost[question]:
            question = best
    says, denies = sample.divide(question, rows)
    return question, _pass(sample, yes, says), _pass(sample, no, denies)


def _without_a_leaf(sample: TrainingSet, shape: IndexTree) -> list[IndexTree]:
    """All trees with one leaf less, of which the other side takes its rows; the best first."""
    found: list[tuple[float, Way, IndexTree]] = []
    pending: list[tuple[IndexTree, Rows, Way]] = [(shape, sample.every, ())]
    while pending:
        node, rows, way = pending.pop()
        if not isinstance(node, tuple):
            continue
        question, yes, no = node
        before = sample.spent(node, rows).sum()
        for leaf, other in ((yes, no), (no, yes)):
            if not isinstance(leaf, tuple):
                after = sample.spent(other, rows).sum()
                found.append((float(after - before), way, replaced(shape, way, other)))
        says, denies = sample.divide(question, rows)
        pending += [(yes, says, (*way, 1)), (no, denies, (*way, 2))]
    return [tree for _, _, tree in sorted(found, key=lambda entry: entry[:2])]
