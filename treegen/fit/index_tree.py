"""Trees over numbered questions and configs, what they cost, and the greedy way to grow one."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

IndexTree = int | tuple[int, "IndexTree", "IndexTree"]
"""A column of `cost` (a leaf), or (question, where the answer is yes, where it is no)."""


def total(
    shape: IndexTree, answers: npt.NDArray[np.bool_], cost: npt.NDArray[np.int64], leaf_price: int = 0
) -> int:
    """The cost of every row at its leaf's config, plus leaf_price a leaf.

    answers: [questions, rows]; cost: [rows, configs].
    """
    pending: list[tuple[IndexTree, npt.NDArray[np.int64]]] = [(shape, np.arange(len(cost)))]
    result = 0
    while pending:
        node, rows = pending.pop()
        if isinstance(node, tuple):
            question, yes, no = node
            holds = answers[question, rows]
            pending += [(yes, rows[holds]), (no, rows[~holds])]
        else:
            result += int(cost[rows, node].sum()) + leaf_price
    return result


def count_leaves(shape: IndexTree) -> int:
    return count_leaves(shape[1]) + count_leaves(shape[2]) if isinstance(shape, tuple) else 1


def height(shape: IndexTree) -> int:
    """The number of questions on the longest way to a leaf."""
    return 1 + max(height(shape[1]), height(shape[2])) if isinstance(shape, tuple) else 0


def preorder(shape: IndexTree) -> tuple[int, ...]:
    """The questions, each before those of its yes side, these before those of its no side; -1 for a leaf."""
    return (shape[0], *preorder(shape[1]), *preorder(shape[2])) if isinstance(shape, tuple) else (-1,)


def greedy(
    answers: npt.NDArray[np.bool_],
    cost: npt.NDArray[np.int64],
    *,
    max_depth: int,
    max_leaves: int | None = None,
    leaf_price: int = 0,
) -> IndexTree:
    """Best-first growth: split the leaf and ask the question that save most, while anything is saved.

    answers: [questions, rows]; cost: [rows, configs]. Of equal savings the older leaf and then the first
    question win.
    """
    configs: list[int] = []
    splits: dict[int, tuple[int, int, int]] = {}  # node -> question, yes node, no node
    queue: list[tuple[int, int, int, int, npt.NDArray[np.int64]]] = []

    def add(rows: npt.NDArray[np.int64], depth: int) -> int:
        node, sums = len(configs), cost[rows].sum(axis=0)
        configs.append(int(sums.argmin()))
        if depth < max_depth and len(answers):
            yes = answers[:, rows] @ cost[rows]
            saved = sums.min() - yes.min(axis=1) - (sums - yes).min(axis=1) - leaf_price
            question = int(saved.argmax())
            if saved[question] > 0:
                heapq.heappush(queue, (-int(saved[question]), node, question, depth, rows))
        return node

    def shape(node: int) -> IndexTree:
        if node not in splits:
            return configs[node]
        question, yes, no = splits[node]
        return question, shape(yes), shape(no)

    add(np.arange(len(cost)), 0)
    while queue and (max_leaves is None or len(splits) + 1 < max_leaves):
        _, node, question, depth, rows = heapq.heappop(queue)
        holds = answers[question, rows]
        splits[node] = question, add(rows[holds], depth + 1), add(rows[~holds], depth + 1)
    return shape(0)
