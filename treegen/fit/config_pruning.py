"""Fewer distinct configs: each costs compile time and memory in production."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from treegen.fit.index_tree import IndexTree
from treegen.fit.training_set import Rows, TrainingSet


def prune_configs(sample: TrainingSet, shape: IndexTree, price: int) -> IndexTree:
    """The tree with the best configs in its leaves, of a set that none leaves while it saves its price.

    Starts from each leaf's best config; then the config goes that the leaves miss least, again and again,
    as long as they lose no more by that than `price`, in steps of `sample.loss`.
    """
    sums = np.array([sample.loss[rows].sum(axis=0) for rows in _rows(sample, shape, sample.every)])
    kept = sorted({int(row.argmin()) for row in sums})
    while len(kept) > 1:
        now = sums[:, kept].min(axis=1).sum()
        without = [sums[:, [c for c in kept if c != gone]].min(axis=1).sum() for gone in kept]
        least = int(np.argmin(without))
        if without[least] - now > price:
            break
        del kept[least]
    return _filled(shape, iter([kept[int(row[kept].argmin())] for row in sums]))


def _rows(sample: TrainingSet, shape: IndexTree, rows: Rows) -> list[Rows]:
    if not isinstance(shape, tuple):
        return [rows]
    yes, no = sample.divide(shape[0], rows)
    return _rows(sample, shape[1], yes) + _rows(sample, shape[2], no)


def _filled(shape: IndexTree, configs: Iterator[int]) -> IndexTree:
    """The tree with the next config in each leaf, yes sides first."""
    if not isinstance(shape, tuple):
        return next(configs)
    yes = _filled(shape[1], configs)
    return shape[0], yes, _filled(shape[2], configs)
