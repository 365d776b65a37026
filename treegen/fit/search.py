"""Fit one shallow tree a regime over what changes from step to step; a leaf holds a config for each class.

A class is a cell of cuts on constants, features that are fixed for a running program. A leaf is a row of the
printed table, and its configs are that row's cells. The search is greedy growth, then alternating
optimisation (Carreira-Perpiñán, Tavallali, NeurIPS 2018) and removal of one side of a split, until nothing
helps. All losses are whole numbers whose sums float64 holds exactly, so every machine finds the same tree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
NodePath = tuple[int, ...]


class Leaf(NamedTuple):
    cells: tuple[int, ...]  # [classes] the column of each class's config


class Node(NamedTuple):
    split: int
    low: RowTree
    high: RowTree


RowTree = Leaf | Node


def count_leaves(tree: RowTree) -> int:
    return 1 if isinstance(tree, Leaf) else count_leaves(tree.low) + count_leaves(tree.high)


def replaced(tree: RowTree, path: NodePath, subtree: RowTree) -> RowTree:
    """The tree with another subtree at the end of a path of sides, 1 for low and 2 for high."""
    if not path:
        return subtree
    assert isinstance(tree, Node)
    if path[0] == 1:
        return Node(tree.split, replaced(tree.low, path[1:], subtree), tree.high)
    return Node(tree.split, tree.low, replaced(tree.high, path[1:], subtree))


@dataclass(frozen=True, eq=False)
class Training:
    """The scenarios of a regime, as the search reads them."""

    is_low: npt.NDArray[np.bool_]  # [splits, scenarios]
    loss: Floats  # [scenarios, configs] whole numbers
    group: Ints  # [scenarios] the class of the scenario's model
    classes: int
    min_rows: int
    max_depth: int
    max_leaves: int
    leaf_price: int

    @cached_property
    def sides(self) -> Floats:
        """[scenarios, splits] 1 on the low side."""
        return np.ascontiguousarray(self.is_low.T.astype(np.float64))

    @cached_property
    def memo(self) -> dict[Hashable, Any]:
        return {}

    @property
    def everywhere(self) -> Ints:
        return np.arange(len(self.loss))

    def key(self, rows: Ints) -> bytes:
        return hashlib.blake2b(rows.tobytes(), digest_size=16).digest()

    def divide(self, split: int, rows: Ints) -> tuple[Ints, Ints]:
        low = self.is_low[split, rows]
        return rows[low], rows[~low]

    def by_class(self, rows: Ints) -> Iterator[tuple[int, Ints]]:
        group = self.group[rows]
        for k in range(self.classes):
            inside = rows[group == k]
            if len(inside):
                yield k, inside

    def best_cells(self, rows: Ints) -> Leaf:
        """Each class's config of least loss, where a class counts with one scenario of the row's mean."""
        key = "cells", self.key(rows)
        if key not in self.memo:
            pool = self.loss[rows].sum(axis=0) // max(1, len(rows))
            cells = np.full(self.classes, int(pool.argmin()))
            for k, inside in self.by_class(rows):
                cells[k] = int((self.loss[inside].sum(axis=0) + pool).argmin())
            self.memo[key] = Leaf(tuple(cells.tolist()))
        found: Leaf = self.memo[key]
        return found

    def row_losses(self, tree: RowTree, rows: Ints) -> Floats:
        """[rows] the loss of each scenario by the tree."""
        if isinstance(tree, Leaf):
            return np.asarray(self.loss[rows, np.array(tree.cells)[self.group[rows]]])
        low = self.is_low[tree.split, rows]
        result = np.empty(len(rows))
        result[low], result[~low] = (
            self.row_losses(tree.low, rows[low]),
            self.row_losses(tree.high, rows[~low]),
        )
        return result

    def total(self, tree: RowTree) -> float:
        """Its loss, with the price of its leaves."""
        return float(self.row_losses(tree, self.everywhere).sum()) + self.leaf_price * count_leaves(tree)

    def too_small(self, low: Floats, rows: int) -> npt.NDArray[np.bool_]:
        return np.asarray((low < self.min_rows) | (rows - low < self.min_rows))

    def nodes(
        self, tree: RowTree, rows: Ints | None = None, path: NodePath = ()
    ) -> Iterator[tuple[NodePath, RowTree, Ints]]:
        rows = self.everywhere if rows is None else rows
        yield path, tree, rows
        if isinstance(tree, Node):
            low, high = self.divide(tree.split, rows)
            yield from self.nodes(tree.low, low, (*path, 1))
            yield from self.nodes(tree.high, high, (*path, 2))


def side_losses(sums: Floats, counts: Floats) -> Floats:
    """[splits] the loss of one side of each split, each class by its best config.

    sums: [classes, splits, configs] of the losses there. counts: [classes, splits] of the scenarios there.
    """
    mean = sums.sum(axis=0) // np.maximum(1, counts.sum(axis=0))[:, None]
    best = (sums + mean).argmin(axis=2)
    return np.asarray(np.take_along_axis(sums, best[:, :, None], axis=2).sum(axis=(0, 2)))


def best_split(training: Training, rows: Ints, depth: int) -> tuple[float, int]:
    """Return what the best split of a leaf saves, and its number."""
    if depth >= training.max_depth or len(rows) < 2 * training.min_rows or not len(training.is_low):
        return -np.inf, 0
    key = "split", training.key(rows)
    if key not in training.memo:
        count = training.sides[rows].sum(axis=0)
        possible = np.flatnonzero(~training.too_small(count, len(rows)))
        if len(possible):
            classes = [inside for _, inside in training.by_class(rows)]
            sides = [training.sides[np.ix_(inside, possible)] for inside in classes]
            low = np.stack([s.T @ training.loss[r] for s, r in zip(sides, classes, strict=True)])
            low_count = np.stack([side.sum(axis=0) for side in sides])
            now = np.stack([training.loss[inside].sum(axis=0)[None] for inside in classes])
            count_now = np.array([[float(len(inside))] for inside in classes])
            saved = side_losses(now, count_now) - side_losses(low, low_count)
            saved -= side_losses(now - low, count_now - low_count)
            best = int(saved.argmax())
            training.memo[key] = float(saved[best]), int(possible[best])
        else:
            training.memo[key] = -np.inf, 0
    found: tuple[float, int] = training.memo[key]
    return found


def grow(training: Training, tree: RowTree) -> RowTree:
    """Split the leaf whose split saves most, while that is more than its price and the limits allow it."""
    leaves = {path: rows for path, node, rows in training.nodes(tree) if isinstance(node, Leaf)}
    options = {path: best_split(training, rows, len(path)) for path, rows in leaves.items()}
    for _ in range(training.max_leaves - count_leaves(tree)):
        path = max(options, key=lambda path: options[path][0])
        saved, split = options.pop(path)
        if saved <= training.leaf_price:
            break
        low, high = training.divide(split, leaves[path])
        tree = replaced(tree, path, Node(split, training.best_cells(low), training.best_cells(high)))
        for step, rows in ((1, low), (2, high)):
            leaves[*path, step] = rows
            options[*path, step] = best_split(training, rows, len(path) + 1)
    return tree


def alternate(training: Training, tree: RowTree) -> RowTree:
    """Choose each split anew, given the subtrees below it, and each leaf's cells, until nothing improves."""
    while True:
        other = _reoptimised(training, tree, training.everywhere)
        if training.total(other) >= training.total(tree):
            return tree
        tree = other


def _reoptimised(training: Training, tree: RowTree, rows: Ints) -> RowTree:
    key = "tree", tree, training.key(rows)
    if key not in training.memo:
        training.memo[key] = _once(training, tree, rows)
    found: RowTree = training.memo[key]
    return found


def _once(training: Training, tree: RowTree, rows: Ints) -> RowTree:
    if isinstance(tree, Leaf):
        return training.best_cells(rows) if len(rows) else tree
    split = tree.split
    if len(rows):
        difference = training.row_losses(tree.low, rows) - training.row_losses(tree.high, rows)
        sides = training.sides[rows]
        loss = difference @ sides
        loss[training.too_small(sides.sum(axis=0), len(rows))] = np.inf
        best = int(loss.argmin())
        if loss[best] < loss[split]:
            split = best
    low, high = training.divide(split, rows)
    return Node(split, _reoptimised(training, tree.low, low), _reoptimised(training, tree.high, high))


def local_search(training: Training, rounds: int = 40) -> RowTree:
    """Grow, then remove one side of a split and grow again, while that lowers the total."""
    tree: RowTree = training.best_cells(training.everywhere)
    tree = alternate(training, grow(training, tree))
    for _ in range(rounds):
        for smaller in _one_side_fewer(training, tree):
            other = alternate(training, grow(training, alternate(training, smaller)))
            if training.total(other) < training.total(tree):
                tree = other
                break
        else:
            break
    return tree


def _one_side_fewer(training: Training, tree: RowTree) -> list[RowTree]:
    candidates: list[tuple[float, NodePath, int, RowTree]] = []
    for path, node, rows in training.nodes(tree):
        if isinstance(node, Node):
            before = training.row_losses(node, rows).sum()
            leaf = training.best_cells(rows)
            for number, left in enumerate((node.low, node.high, leaf)):
                after = training.row_losses(left, rows).sum()
                candidates.append((float(after - before), path, number, replaced(tree, path, left)))
    return [smaller for *_, smaller in sorted(candidates, key=lambda entry: entry[:3])]
