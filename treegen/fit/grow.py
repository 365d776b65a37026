"""Grow a tree best-first: always take the split that removes most cost, anywhere in the tree.

The gain of a split is what it removes of (a) the cost of the best single config of each side and (b) the
spread of the cost rows around their mean, averaged over configs. (b) is Gini impurity when costs are 0 or
1 (Breiman et al., Classification and Regression Trees, 1984, section 4.3) and finds structure where no
single split changes a leaf's config yet. All arithmetic is on integers.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.problem import UNIT, Problem
from treegen.spec import Budget, Config
from treegen.tree import Leaf, Split, Tree

_SPREAD_STEPS = 1_000
_SPREAD_CAP = 4 * _SPREAD_STEPS


@dataclass(frozen=True)
class _Cut:
    """The best split of one node: rows with `feature <= below` against the rest, which start at `above`."""

    gain: int
    feature: int
    below: int
    above: int


@dataclass(frozen=True)
class _View:
    """What growing reads, as arrays: features [scenarios, split_on], cost and spread [scenarios, configs]."""

    features: npt.NDArray[np.int64]
    cost: npt.NDArray[np.int64]
    spread: npt.NDArray[np.int64]
    overall: npt.NDArray[np.int64]
    configs: tuple[Config, ...]


@dataclass
class _Node:
    rows: npt.NDArray[np.int64]
    depth: int
    config: int
    cut: _Cut | None
    children: tuple[_Node, _Node] | None = None


def grow(problem: Problem, budget: Budget) -> list[Tree]:
    """Trees of 1, 2, ... leaves, each the one before with one leaf split; at most budget.max_leaves.

    The list ends early when no split gains anything. Thresholds are the greatest value seen on the low
    side; `Split.gap` keeps the interval in which a pass may move them.
    """
    view = _View(
        np.stack([problem.column(name) for name in problem.split_on], axis=1),
        problem.cost,
        np.minimum(problem.cost // (UNIT // _SPREAD_STEPS), _SPREAD_CAP),
        problem.cost.sum(axis=0),
        problem.configs,
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
    return min(range(len(total)), key=lambda c: (total[c], view.overall[c], view.configs[c]))


def _best_cut(view: _View, rows: npt.NDArray[np.int64]) -> _Cut | None:
    features, cost, spread = view.features[rows], view.cost[rows], view.spread[rows]
    best: tuple[int, float, int] | None = None
    cut = None
    now = (
        _least(cost.sum(axis=0)[None])[0]
        + _scatter(spread.sum(axis=0)[None], (spread**2).sum(axis=0)[None], np.array([len(rows)]))[0]
    )
    for feature in range(features.shape[1]):
        order = np.argsort(features[:, feature], kind="stable")
        values = features[order, feature]
        ends = np.flatnonzero(values[1:] != values[:-1])  # last row of the low side
        if not len(ends):
            continue
        gains = now - _split_costs(cost[order], ends) - _split_scatters(spread[order], ends)
        for position in np.flatnonzero(gains == gains.max()):
            below, above = int(values[ends[position]]), int(values[ends[position] + 1])
            # Equal gains: the widest gap generalises best, then the feature that the spec names first.
            key = (int(gains[position]), _width(below, above), -feature)
            if best is None or key > best:
                best, cut = key, _Cut(int(gains[position]), feature, below, above)
    return cut if cut is not None and cut.gain > 0 else None


def _split_costs(cost: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """[ends] cost of the best config on the low side plus that of the high side."""
    running = np.cumsum(cost, axis=0)
    return _least(running[ends]) + _least(running[-1] - running[ends])


def _split_scatters(spread: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    total, squares = np.cumsum(spread, axis=0), np.cumsum(spread**2, axis=0)
    count = ends + 1
    low = _scatter(total[ends], squares[ends], count)
    return low + _scatter(total[-1] - total[ends], squares[-1] - squares[ends], len(spread) - count)


def _least(totals: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.asarray(totals.min(axis=1))


def _scatter(
    total: npt.NDArray[np.int64], squares: npt.NDArray[np.int64], count: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Squared distance of the rows to their mean row, averaged over configs, from sums [splits, configs]."""
    return np.asarray((squares - total**2 // count[:, None]).sum(axis=1) // total.shape[1])


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
