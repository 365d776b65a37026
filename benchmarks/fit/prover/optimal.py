"""Decision trees that are proven optimal.

The method is dynamic programming over sets of rows with branch and bound, as in DL8.5 (Aglin, Nijssen,
Schaus, AAAI 2020) and MurTree (Demirović et al., JMLR 23, 2022). It minimises costs instead of misses, as
STreeD does (van der Linden, de Weerdt, Demirović, NeurIPS 2023).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.fit.prover.optimal_search import Search
from treegen.fit.local_search import grow
from treegen.fit.training_set import IndexTree, TrainingSet, count_leaves, height

MOST_NODES = 100_000

_MOST_BITS = 62


@dataclass(frozen=True)
class Optimum:
    tree: IndexTree  # the best tree that was found
    cost: int  # its total
    bound: int  # no tree within the limits costs less
    nodes: int  # subproblems visited

    @property
    def proven(self) -> bool:
        return self.bound == self.cost


def optimal(
    answers: npt.NDArray[np.bool_],
    cost: npt.NDArray[np.int64],
    *,
    max_depth: int,
    max_leaves: int | None = None,
    leaf_price: int = 0,
    start: IndexTree | None = None,
    most_nodes: int = MOST_NODES,
) -> Optimum:
    """The tree of least total cost: that of every row with its leaf's config, plus leaf_price a leaf.

    Among trees of equal total, the one with fewer leaves wins. After that, the tree wins whose questions in
    preorder come first; a leaf comes before any question. Among equal configs the first wins. Once most_nodes
    subproblems have been visited, the best tree so far is returned with the bound proven so far. The same
    arguments give the same result on every machine.

    Args:
        answers: [questions, rows] whether a row goes to the first side ("yes") of a split
        cost: [rows, configs] int64, not negative
        max_depth: the most questions in a row
        max_leaves: the most leaves; None is no limit
        leaf_price: the cost of a leaf
        start: a tree to improve on
        most_nodes: the most subproblems to visit

    Raises:
        ValueError: the arguments do not fit together, or totals may exceed 62 bits.
    """
    _check(answers, cost, max_depth, max_leaves, leaf_price)

    def order(tree: IndexTree) -> tuple[int, int]:
        return total(tree, answers, cost, leaf_price), count_leaves(tree)

    most_leaves = len(cost) if max_leaves is None else max_leaves
    training = TrainingSet(
        answers.astype(np.float64), cost.astype(np.float64), 1, max_depth, most_leaves, leaf_price
    )
    known = grow(training, training.best_config(training.all_rows))
    if start is not None:
        if height(start) > max_depth or (max_leaves is not None and count_leaves(start) > max_leaves):
            raise ValueError("the tree to start from is beyond the limits")
        known = min(start, known, key=order)
    known_cost = order(known)[0]
    if not len(cost):
        return Optimum(known, known_cost, known_cost, 0)

    distinct, merged = _merge(answers, cost)
    depth = min(max_depth, len(merged) - 1)
    useful = min(1 << depth, len(merged))
    leaves = 1 << depth if max_leaves is None or max_leaves >= useful else max_leaves
    least = merged.min(axis=1, keepdims=True)
    base, scale = int(least.sum()), useful + 1
    room = known_cost - base
    # What the search compares is (cost above `base`) * scale + leaves. No tree of interest has a cell that
    # alone costs more than `room`: such cells become equal, which keeps sums small.
    search = Search(
        distinct, np.minimum(merged - least, room + 1) * scale, leaf_price * scale + 1, most_nodes
    )
    limit = (room + 1) * scale - 1
    answer = search.solve(np.ones(len(merged), dtype=bool), np.arange(len(answers)), depth, leaves, limit)
    if answer.best is not None and answer.best.value <= limit:
        best = answer.best.tree
        known = best if answer.solved else min(known, best, key=order)
    least_cost = order(known)[0]
    return Optimum(known, least_cost, min(least_cost, base + answer.lower // scale), search.nodes)


def total(
    tree: IndexTree, answers: npt.NDArray[np.bool_], cost: npt.NDArray[np.int64], leaf_price: int = 0
) -> int:
    """The cost of every row with its leaf's config, plus leaf_price per leaf, exact up to 63 bits."""
    pending: list[tuple[IndexTree, npt.NDArray[np.int64]]] = [(tree, np.arange(len(cost)))]
    result = 0
    while pending:
        node, rows = pending.pop()
        if isinstance(node, tuple):
            holds = answers[node[0], rows]
            pending += [(node[1], rows[holds]), (node[2], rows[~holds])]
        else:
            result += int(cost[rows, node].sum()) + leaf_price
    return result


def _check(
    answers: npt.NDArray[np.bool_],
    cost: npt.NDArray[np.int64],
    max_depth: int,
    max_leaves: int | None,
    leaf_price: int,
) -> None:
    if cost.ndim != 2 or cost.shape[1] == 0 or cost.dtype != np.int64:
        raise ValueError("cost must be int64 [rows, configs] with one config at least")
    if answers.ndim != 2 or answers.shape[1] != len(cost) or answers.dtype != np.bool_:
        raise ValueError("answers must be bool [questions, rows] for the rows of cost")
    if max_depth < 0 or (max_leaves is not None and max_leaves < 1):
        raise ValueError("a tree has one leaf at least")
    if leaf_price < 0 or (cost.size and int(cost.min()) < 0):
        raise ValueError("costs and the leaf price must not be negative")
    most_leaves = min(1 << min(max_depth, _MOST_BITS), len(cost))
    worst = sum(cost.max(axis=1).tolist()) + leaf_price * most_leaves
    if (worst + 1) * (most_leaves + 1) >= 1 << _MOST_BITS:
        raise ValueError(f"costs are too large: totals, times the leaves, may exceed {_MOST_BITS} bits")


def _merge(
    answers: npt.NDArray[np.bool_], cost: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.int64]]:
    """Rows with the same answers become one row, with their costs added up."""
    places: dict[bytes, int] = {}
    rows = np.packbits(answers, axis=0).T
    place = np.array([places.setdefault(row.tobytes(), len(places)) for row in rows])
    merged = np.zeros((len(places), cost.shape[1]), dtype=np.int64)
    np.add.at(merged, place, cost)
    return answers[:, np.unique(place, return_index=True)[1]], merged
