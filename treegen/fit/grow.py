"""Grow a tree best-first: always take the split that removes most cost, anywhere in the tree.

The gain of a split is what it removes of (a) the cost of the best single config of each side and (b) the
spread of the cost rows around their mean (`spread`), which finds structure where no single split changes a
leaf's config yet. All arithmetic is on integers.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from treegen.fit.spread import scatter, spread_of
from treegen.problem import Problem, charged
from treegen.spec import Budget
from treegen.tree import Leaf, Split, Tree

_LEAST = 100  # a leaf holds one scenario of so many at least: fewer tell little of the next one


@dataclass(frozen=True)
class _Cut:
    """The best split of one node: rows with `feature <= below` against the rest, which start at `above`."""

    gain: int
    feature: int
    below: int
    above: int


@dataclass(frozen=True)
class _View:
    """What growing reads. features: [scenarios, split_on]; cost: [scenarios, candidates].

    preference: [candidates] place in the order of total cost over the whole table, then of configs.
    sums: beside each other what a split needs sums of, `cost` and the parts of a Spread, divided at `bounds`.
    """

    features: npt.NDArray[np.int64]
    cost: npt.NDArray[np.int64]
    candidates: npt.NDArray[np.int64]
    preference: npt.NDArray[np.int64]
    sums: npt.NDArray[np.int64]
    bounds: tuple[int, ...]
    least: int


@dataclass
class _Node:
    rows: npt.NDArray[np.int64]
    depth: int
    config: int
    cut: _Cut | None
    children: tuple[_Node, _Node] | None = None


def grow(problem: Problem, budget: Budget, candidates: npt.NDArray[np.int64] | None = None) -> list[Tree]:
    """Trees of 1, 2, ... leaves, each the one before with one leaf split; at most budget.max_leaves.

    candidates: indices of the configs that leaves may take; None: all.

    The list ends early when no split gains anything. Thresholds are the greatest value seen on the low
    side; `Split.gap` keeps the interval in which a pass may move them.
    """
    if candidates is None:
        candidates = np.arange(len(problem.configs))
    cost, spread = charged(problem.cost[:, candidates]), spread_of(problem.cost)
    parts = (cost, spread.cost, spread.square, spread.count)
    view = _View(
        np.stack([problem.column(name) for name in problem.split_on], axis=1),
        cost,
        candidates,
        _preference(problem)[candidates],
        np.hstack(parts),
        tuple(accumulate(part.shape[1] for part in parts[:-1])),
        max(1, len(problem.cost) // _LEAST),
    )
    root = _node(view, np.arange(len(view.cost)), budget.max_depth)
    trees = [_tree(problem, root)]
    queue: list[tuple[int, int, _Node]] = []
    counter = 0

    def offer(node: _Node) -> None:
        nonlocal counter
        counter += 1
        if node.cut is not None:
            heapq.heappush(queue, (-node.cut.gain, counter, node))

    offer(root)
    while queue and len(trees) < budget.max_leaves:
        _, _, node = heapq.heappop(queue)
        assert node.cut is not None
        low = view.features[node.rows, node.cut.feature] <= node.cut.below
        node.children = (
            _node(view, node.rows[low], node.depth - 1),
            _node(view, node.rows[~low], node.depth - 1),
        )
        offer(node.children[0])
        offer(node.children[1])
        trees.append(_tree(problem, root))
    return trees


def _node(view: _View, rows: npt.NDArray[np.int64], depth: int) -> _Node:
    config = _best_config(view, rows)
    return _Node(rows, depth, config, _best_cut(view, rows) if depth > 0 else None)


def _best_config(view: _View, rows: npt.NDArray[np.int64]) -> int:
    """The config of least total cost; between equals the one that is best over the whole table."""
    total = view.cost[rows].sum(axis=0)
    return int(view.candidates[np.lexsort([view.preference, total])[0]])


def _preference(problem: Problem) -> npt.NDArray[np.int64]:
    overall = charged(problem.cost).sum(axis=0)
    order = sorted(range(len(overall)), key=lambda c: (overall[c], problem.configs[c]))
    return np.argsort(order)


def _best_cut(view: _View, rows: npt.NDArray[np.int64]) -> _Cut | None:
    features, sums = view.features[rows], view.sums[rows]
    best: tuple[int, float, int] | None = None
    cut = None
    now = int(_left(view, sums.sum(axis=0)[None])[0])
    for feature in range(features.shape[1]):
        order = np.argsort(features[:, feature], kind="stable")
        values = features[order, feature]
        ends = np.flatnonzero(values[1:] != values[:-1])  # last row of the low side
        ends = ends[(ends + 1 >= view.least) & (len(rows) - ends - 1 >= view.least)]
        if not len(ends):
            continue
        running = np.cumsum(sums[order], axis=0)
        low = running[ends]
        gains = now - _left(view, low) - _left(view, running[-1] - low)
        for position in np.flatnonzero(gains == gains.max()):
            below, above = int(values[ends[position]]), int(values[ends[position] + 1])
            # Equal gains: the widest gap generalises best, then the feature that the spec names first.
            key = (int(gains[position]), _width(below, above), -feature)
            if best is None or key > best:
                best, cut = key, _Cut(int(gains[position]), feature, below, above)
    return cut if cut is not None and cut.gain > 0 else None


def _left(view: _View, sums: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[splits] the cost of the best config and the spread that remain on a side with these sums."""
    cost, *spread = np.split(sums, view.bounds, axis=1)
    return np.asarray(cost.min(axis=1) + scatter(*spread))


def _width(below: int, above: int) -> float:
    """The relative width of a gap, for features that live on a log scale."""
    return round(math.log(max(above, 1) + 1) - math.log(max(below, 0) + 1), 9)


def _tree(problem: Problem, node: _Node) -> Tree:
    if node.children is None:
        return Leaf(problem.configs[node.config])
    assert node.cut is not None
    low, high = (_tree(problem, child) for child in node.children)
    return Split(
        problem.split_on[node.cut.feature], node.cut.below, low, high, (node.cut.below, node.cut.above)
    )
