"""Grow a tree best-first: always the split that saves most, anywhere in the tree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treegen.fit.index_tree import IndexTree, count_leaves
from treegen.fit.training_set import Rows, TrainingSet

Way = tuple[int, ...]
"""From the root of a tree to a node: 1 to the yes side, 2 to the no side."""


def grow(sample: TrainingSet, shape: IndexTree) -> IndexTree:
    """Split leaves of a tree as long as that saves more than a leaf costs and the limits allow."""
    splits = {way: _best_split(sample, rows, len(way)) for way, rows in _leaves(sample, shape)}
    for _ in range(sample.max_leaves - count_leaves(shape)):
        way = max(splits, key=lambda way: splits[way][0])  # of equals the one that has been there longest
        saved, part = splits.pop(way)
        if saved <= sample.leaf_price:
            break
        shape = replaced(shape, way, part)
        rows = _at(sample, shape, way)
        for step, side in zip((1, 2), sample.divide(part[0], rows), strict=True):
            splits[*way, step] = _best_split(sample, side, len(way) + 1)
    return shape


def replaced(shape: IndexTree, way: Way, part: IndexTree) -> IndexTree:
    """The tree with another part at the end of a way."""
    if not way:
        return part
    assert isinstance(shape, tuple)
    question, yes, no = shape
    if way[0] == 1:
        return question, replaced(yes, way[1:], part), no
    return question, yes, replaced(no, way[1:], part)


def _best_split(sample: TrainingSet, rows: Rows, depth: int) -> tuple[float, tuple[int, int, int]]:
    if depth >= sample.max_depth or len(rows) < 2 * sample.least or not len(sample.answers):
        return -np.inf, (0, 0, 0)
    saved = _saved(sample, rows)
    question = int(saved.argmax())
    yes, no = map(sample.best_config, sample.divide(question, rows))
    return float(saved[question]), (question, yes, no)


def _saved(sample: TrainingSet, rows: Rows) -> npt.NDArray[np.float64]:
    """[questions] the loss that a split by each saves; -inf where a side is too small."""
    sums = sample.loss[rows].sum(axis=0)
    yes = sample.by_row[rows].T @ sample.loss[rows]
    saved = sums.min() - yes.min(axis=1) - (sums - yes).min(axis=1)
    saved[sample.too_small(rows)] = -np.inf
    return np.asarray(saved)


def _at(sample: TrainingSet, shape: IndexTree, way: Way) -> Rows:
    rows = sample.every
    for step in way:
        assert isinstance(shape, tuple)
        rows, shape = sample.divide(shape[0], rows)[step - 1], shape[step]
    return rows


def _leaves(sample: TrainingSet, shape: IndexTree) -> list[tuple[Way, Rows]]:
    found: list[tuple[Way, Rows]] = []
    pending: list[tuple[Way, IndexTree, Rows]] = [((), shape, sample.every)]
    while pending:
        way, node, rows = pending.pop()
        if not isinstance(node, tuple):
            found.append((way, rows))
            continue
        yes, no = sample.divide(node[0], rows)
        pending += [((*way, 2), node[2], no), ((*way, 1), node[1], yes)]
    return found
