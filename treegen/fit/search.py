"""Fit one shallow tree a regime over what changes from step to step; a leaf holds a config for each class.

A class is a cell of cuts on constants, features that are fixed for a running program. A leaf is a row of the
printed table, and its configs are that row's cells. The search is greedy growth, then alternating
optimisation (Carreira-Perpiñán, Tavallali, NeurIPS 2018) and removal of one side of a split, until nothing
helps. Rows must pay by evidence, not by their number of scenarios. A search may start from an earlier tree:
then what it changes must pay, too, so that noise changes nothing. All losses are whole numbers whose sums
float64 holds exactly, so every machine finds the same tree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from treegen.core.launches import Ints
from treegen.fit.costs import Evidence, Floats

NodePath = tuple[int, ...]


class Leaf(NamedTuple):
    cells: tuple[int, ...]  # [classes] the column of each class's config
    before: tuple[int, ...] = ()  # the same of the earlier row, NONE where its config is gone; () without one
    row: int = -1  # the number of the earlier row


class Node(NamedTuple):
    split: int
    low: RowTree
    high: RowTree
    before: int | None = None  # the earlier tree's split


RowTree = Leaf | Node
NONE = -1


def count_leaves(tree: RowTree) -> int:
    return 1 if isinstance(tree, Leaf) else count_leaves(tree.low) + count_leaves(tree.high)


def replaced(tree: RowTree, path: NodePath, subtree: RowTree) -> RowTree:
    """The tree with another subtree at the end of a path of sides, 1 for low and 2 for high."""
    if not path:
        return subtree
    assert isinstance(tree, Node)
    if path[0] == 1:
        return tree._replace(low=replaced(tree.low, path[1:], subtree))
    return tree._replace(high=replaced(tree.high, path[1:], subtree))


@dataclass(frozen=True, eq=False)
class Training:
    """The scenarios of a regime, as the search reads them."""

    is_low: npt.NDArray[np.bool_]  # [splits, scenarios]
    loss: Floats  # [scenarios, configs] whole numbers
    group: Ints  # [scenarios] the class of the scenario's model
    classes: int
    max_depth: int
    max_leaves: int
    leaf_price: int
    cluster: Ints  # [scenarios] equal for those of a model, or of what else is held out together
    enough: int  # scenarios of which a side of a split needs no evidence that models agree about it
    row: Evidence  # for every row
    small: Evidence  # by models, for the sides of a split that have fewer scenarios
    change: Evidence  # for another config or bound than the earlier tree's
    isolates: bool = False  # whether two splits at once may cut a range out of a leaf

    @cached_property
    def sides(self) -> Floats:
        """[scenarios, splits] 1 on the low side."""
        return np.ascontiguousarray(self.is_low.T.astype(np.float64))

    @cached_property
    def memo(self) -> dict[Hashable, Any]:
        return {}

    def by_cluster(self, rows: Ints, values: Floats) -> Floats:
        """[clusters, ...] the sums of values [rows, ...]."""
        cluster = self.cluster[rows]
        order = np.argsort(cluster, kind="stable")
        starts = np.flatnonzero(np.diff(cluster[order], prepend=-1))
        return np.asarray(np.add.reduceat(values[order], starts, axis=0))

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

    def best_cells(self, rows: Ints, old: Leaf | None = None) -> Leaf:
        """Each class's config of least loss, where a class counts with one scenario of the row's mean.

        A config of the earlier row stays unless another one is evidently better: first in the classes that
        share it, then in each class.
        """
        before = old.before if old is not None else ()
        key = "cells", self.key(rows), before
        if key not in self.memo:
            pool = self.loss[rows].sum(axis=0) // max(1, len(rows))
            cells = before or (NONE,) * self.classes
            inside = dict(self.by_class(rows))
            for kinds in [[k for k in inside if cells[k] == c] for c in sorted(set(before))]:
                cells = self._chosen(kinds, inside, pool, cells)
            for k in inside:
                cells = self._chosen([k], inside, pool, cells)
            default = int((pool if len(rows) else self.loss.sum(axis=0)).argmin())
            self.memo[key] = tuple(default if c == NONE else c for c in cells)
        cells = self.memo[key]
        return Leaf(cells) if old is None else old._replace(cells=cells)

    def _chosen(
        self, kinds: list[int], inside: dict[int, Ints], pool: Floats, cells: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The cells where classes that share a config have the best one, if it pays to change it."""
        if not kinds:
            return cells
        rows = np.concatenate([inside[k] for k in kinds])
        loss = self.loss[rows]
        sums, old = loss.sum(axis=0) + pool, cells[kinds[0]]
        best = int(sums.argmin())
        if old not in (NONE, best):
            pays = self.change.pays(loss[:, [old]] - loss)
            best = int(np.where(pays, sums, np.inf).argmin()) if pays.any() else old
        return tuple(best if k in kinds else c for k, c in enumerate(cells))

    def row_losses(self, tree: RowTree, rows: Ints) -> Floats:
        """[rows] the loss of each scenario by the tree."""
        if isinstance(tree, Leaf):
            return np.asarray(self.loss[rows, np.array(tree.cells)[self.group[rows]]])
        low = self.is_low[tree.split, rows]
        result = np.empty(len(rows))
        result[low] = self.row_losses(tree.low, rows[low])
        result[~low] = self.row_losses(tree.high, rows[~low])
        return result

    def total(self, tree: RowTree) -> float:
        """Its loss, with the price of its leaves."""
        return float(self.row_losses(tree, self.everywhere).sum()) + self.leaf_price * count_leaves(tree)

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


def best_split(training: Training, leaf: Leaf, rows: Ints, depth: int) -> tuple[float, RowTree]:
    """Return what the best split of a leaf saves that pays for a row of its own, and the split leaf."""
    if depth >= training.max_depth or len(rows) < 2 or not len(training.is_low):
        return -np.inf, leaf
    key = "split", leaf, training.key(rows)
    if key not in training.memo:
        training.memo[key] = _best_split(training, leaf, rows)
    found: tuple[float, RowTree] = training.memo[key]
    return found


def _best_split(training: Training, leaf: Leaf, rows: Ints) -> tuple[float, RowTree]:
    count = training.sides[rows].sum(axis=0)
    possible = np.flatnonzero((count > 0) & (count < len(rows)))
    if not len(possible):
        return -np.inf, leaf
    classes = [inside for _, inside in training.by_class(rows)]
    sides = [training.sides[np.ix_(inside, possible)] for inside in classes]
    low = np.stack([s.T @ training.loss[r] for s, r in zip(sides, classes, strict=True)])
    low_count = np.stack([side.sum(axis=0) for side in sides])
    now = np.stack([training.loss[inside].sum(axis=0)[None] for inside in classes])
    count_now = np.array([[float(len(inside))] for inside in classes])
    before = training.row_losses(leaf, rows)
    saved = before.sum() - side_losses(low, low_count)
    saved -= side_losses(now - low, count_now - low_count)
    for place in np.argsort(-saved, kind="stable"):
        if saved[place] <= training.leaf_price:
            break
        split = int(possible[place])
        low_rows, high_rows = training.divide(split, rows)
        node = Node(split, training.best_cells(low_rows, leaf), training.best_cells(high_rows, leaf))
        drop = before - training.row_losses(node, rows)
        is_small = min(len(low_rows), len(high_rows)) < training.enough
        if drop.sum() <= training.leaf_price or (leaf.before and not training.change.pays(drop)):
            continue
        if not is_small or training.small.pays(training.by_cluster(rows, drop)):
            return float(drop.sum()), node
    return -np.inf, leaf


def grow(training: Training, tree: RowTree) -> RowTree:
    """Split the leaf whose split saves most, while that is more than its price and the limits allow it."""
    leaves = {path: (node, rows) for path, node, rows in training.nodes(tree) if isinstance(node, Leaf)}
    options = {path: best_split(training, *found, len(path)) for path, found in leaves.items()}
    for _ in range(training.max_leaves - count_leaves(tree)):
        path = max(options, key=lambda path: options[path][0])
        saved, node = options.pop(path)
        if not isinstance(node, Node) or saved <= training.leaf_price:
            return _isolated(training, tree, leaves) if training.isolates else tree
        tree = replaced(tree, path, node)
        sides = training.divide(node.split, leaves.pop(path)[1])
        for step, side, rows in ((1, node.low, sides[0]), (2, node.high, sides[1])):
            assert isinstance(side, Leaf)
            leaves[*path, step] = side, rows
            options[*path, step] = best_split(training, side, rows, len(path) + 1)
    return tree


def _isolated(training: Training, tree: RowTree, leaves: dict[NodePath, tuple[Leaf, Ints]]) -> RowTree:
    """The tree with two splits that cut a range out of a leaf, where no single split saves enough."""
    best: tuple[float, NodePath, int, int] = (2.0 * training.leaf_price, (), 0, 0)
    if count_leaves(tree) + 2 > training.max_leaves or training.classes > 1:
        return tree
    for path, (leaf, rows) in leaves.items():
        if len(path) + 2 <= training.max_depth and len(rows) > 2 and not leaf.before:
            sides, loss = training.sides[rows], training.loss[rows]
            low, count = sides.T @ loss, sides.sum(axis=0)
            inside = low[None] - low[:, None]  # [splits, splits, configs] above the first, within the second
            nested = (sides.T @ sides == count[:, None]) & (count[:, None] < count[None])
            parts = low.min(axis=1)[:, None] + inside.min(axis=2) + (loss.sum(axis=0) - low).min(axis=1)[None]
            saved = np.where(nested, loss.sum(axis=0).min() - parts, -np.inf)
            place = divmod(int(saved.argmax()), len(low)) if saved.size else (0, 0)
            if saved.size and saved[place] > best[0]:
                best = float(saved[place]), path, *place
    _, path, first, second = best
    if first == second:
        return tree
    below, rest = training.divide(first, leaves[path][1])
    within, above = training.divide(second, rest)
    inner = Node(second, training.best_cells(within), training.best_cells(above))
    return grow(training, replaced(tree, path, Node(first, training.best_cells(below), inner)))


def alternate(training: Training, tree: RowTree) -> RowTree:
    """Choose each split anew, given the subtrees below it, and each leaf's cells, until nothing improves."""
    while True:
        other = _reoptimised(training, tree, training.everywhere)
        if training.total(other) >= training.total(tree):
            return tree
        tree = other


def _reoptimised(training: Training, tree: RowTree, rows: Ints, *, splits: bool = True) -> RowTree:
    """The tree with each leaf's cells chosen anew and, unless told otherwise, each split."""
    key = "tree", tree, training.key(rows), splits
    if key not in training.memo:
        training.memo[key] = _once(training, tree, rows, splits)
    found: RowTree = training.memo[key]
    return found


def _once(training: Training, tree: RowTree, rows: Ints, splits: bool) -> RowTree:
    if isinstance(tree, Leaf):
        return training.best_cells(rows, tree)
    split = _other_split(training, tree, rows) if splits and len(rows) else tree.split
    rows_low, rows_high = training.divide(split, rows)
    low = _reoptimised(training, tree.low, rows_low, splits=splits)
    high = _reoptimised(training, tree.high, rows_high, splits=splits)
    return Node(split, low, high, tree.before)


def _other_split(training: Training, tree: Node, rows: Ints) -> int:
    """The split of least loss, given both subtrees, of those that are allowed."""
    difference = training.row_losses(tree.low, rows) - training.row_losses(tree.high, rows)
    sides = training.sides[rows]
    loss = difference @ sides
    if tree.before is None:
        smaller = np.minimum(sides.sum(axis=0), len(rows) - sides.sum(axis=0))
        allowed = smaller >= training.enough
        small = np.flatnonzero((smaller > 0) & ~allowed & (loss < loss[tree.split]))
        gains = -difference[:, None] * sides[:, small], difference[:, None] * (1 - sides[:, small])
        evident = [training.small.pays(training.by_cluster(rows, gain)) for gain in gains]
        allowed[small] = evident[0] & evident[1]
    else:
        # 1 where a scenario comes to the low side, -1 where it leaves.
        moved = sides - sides[:, [tree.before]]
        allowed = training.change.pays(-difference[:, None] * moved)
        allowed[tree.before] = True
    best = int(np.where(allowed, loss, np.inf).argmin())
    return best if allowed[best] and loss[best] < loss[tree.split] else tree.split


def local_search(training: Training, rounds: int = 40) -> RowTree:
    """Grow, then remove one side of a split and grow again, while that lowers the total; then drop noise."""
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
    return _without_noise(training, tree, training.everywhere)


def _without_noise(training: Training, tree: RowTree, rows: Ints) -> RowTree:
    """The tree without splits that save no more than noise makes of the best of many configs."""
    if isinstance(tree, Leaf):
        return tree
    low, high = training.divide(tree.split, rows)
    sides = _without_noise(training, tree.low, low), _without_noise(training, tree.high, high)
    tree = tree._replace(low=sides[0], high=sides[1])
    others = (tree.low, tree.high, training.best_cells(rows))
    losses = [training.row_losses(other, rows) for other in others]
    best = min(range(len(others)), key=lambda place: losses[place].sum())
    return tree if training.row.pays(losses[best] - training.row_losses(tree, rows)) else others[best]


def changed_search(training: Training, tree: RowTree) -> RowTree:
    """An earlier tree within the limits, with each change that pays: cells, then bounds, then more rows."""
    while count_leaves(tree) > training.max_leaves:
        tree = _one_side_fewer(training, tree)[0]
    tree = _reoptimised(training, tree, training.everywhere, splits=False)
    return grow(training, alternate(training, tree))


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
