"""The best trees of depth two at most, all at once.

Two questions divide the rows into four parts. The cost of each part under a config follows from the sum over
the rows that answer both with yes. This is MurTree's specialised algorithm for depth two (Demirović et al.,
JMLR 23, 2022). Sums of costs replace its counts, as in STreeD (van der Linden, de Weerdt, Demirović,
NeurIPS 2023); the sums are matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.fit.prover.optimal_sums import Digits, Whole
from treegen.fit.training_set import IndexTree

_BLOCK = 1 << 20  # pairs of questions at once: 8 MiB an array
_MOST = 4  # leaves below two questions


@dataclass(frozen=True, slots=True)
class ValuedTree:
    """A tree and its value."""

    value: int  # the cost, in steps so fine that the number of leaves is the remainder
    tree: IndexTree


@dataclass(frozen=True)
class Subproblem:
    """Some rows, and the questions that divide them."""

    ids: npt.NDArray[np.int64]  # [questions] ascending
    answers: npt.NDArray[np.bool_]  # [questions, rows]
    cost: Digits  # [rows, configs]
    price: int  # of a leaf


@dataclass(frozen=True)
class Shallow:
    """The best trees of depth two at most."""

    best: tuple[ValuedTree, ...]  # of at most 1, 2, ... leaves
    rank: Whole  # [questions] value of the best tree with this question at its root


@dataclass(frozen=True)
class _Side:
    """The best tree on one side of each question."""

    value: Whole  # [questions]
    second: npt.NDArray[np.int64]  # [questions] the place of that tree's question, -1 for a leaf


def distinct(answers: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Places of the distinct questions: the first of those that divide the rows alike, without idle ones.

    answers: [questions, rows], one row at least.
    """
    parts = np.packbits(answers ^ answers[:, :1], axis=1)
    first = {part.tobytes(): place for place, part in reversed(list(enumerate(parts)))}
    first.pop(bytes(parts.shape[1]), None)
    return np.array(sorted(first.values()), dtype=np.int64)


def shallow(sub: Subproblem, leaves: int) -> Shallow:
    """The best trees of depth two at most, of 1 to `leaves` leaves (at most four).

    The questions must be distinct. Among trees of equal value, the one whose questions come first wins.
    """
    sizes = range(2, min(leaves, _MOST) + 1)
    leaf = sub.cost.sums(np.ones((1, sub.answers.shape[1])))[0]
    best = [ValuedTree(int(leaf.min()) + sub.price, int(leaf.argmin()))]
    if not sizes or not len(sub.ids):
        return Shallow((best[0],) * (1 + len(sizes)), np.full(len(sub.ids), best[0].value))
    yes, no = _sides(sub, deeper=leaves > 2)
    for size in sizes:
        options = []
        for on_yes in range(max(1, size - 2), min(2, size - 1) + 1):
            values = yes[on_yes - 1].value + no[size - on_yes - 1].value
            options.append((int(values.min()), int(values.argmin()), on_yes))
        value, first, on_yes = min(options)
        if value >= best[-1].value:
            best.append(best[-1])
            continue
        holds = sub.answers[first]
        on_both = (
            _grown(sub, holds, int(yes[on_yes - 1].second[first])),
            _grown(sub, ~holds, int(no[size - on_yes - 1].second[first])),
        )
        best.append(ValuedTree(value, (int(sub.ids[first]), *on_both)))
    return Shallow(tuple(best), yes[-1].value + no[-1].value)


def relaxed(sub: Subproblem, pairs: Digits, prices: npt.NDArray[np.int64]) -> int:
    """A lower bound on the value of every tree of depth two at most.

    It is the value of a tree of one question whose leaves may take the better of two configs for every row.
    No second question does more.

    Args:
        sub: the subproblem
        pairs: [rows, pairs of configs] the lower cost of the two
        prices: [pairs]
    """
    leaf = int(sub.cost.sums(np.ones((1, sub.answers.shape[1]))).min()) + sub.price
    if not len(sub.ids):
        return leaf
    yes, no = _both_sides(pairs, sub.answers.astype(np.float64))
    return min(leaf, int(((yes + prices).min(axis=1) + (no + prices).min(axis=1)).min()))


def _grown(sub: Subproblem, rows: npt.NDArray[np.bool_], question: int) -> IndexTree:
    """The leaf for these rows, or the question at this place and its two leaves."""
    if question < 0:
        return int(sub.cost.sums(rows[None].astype(np.float64))[0].argmin())
    holds = sub.answers[question]
    return int(sub.ids[question]), _grown(sub, rows & holds, -1), _grown(sub, rows & ~holds, -1)


def _both_sides(cost: Digits, members: npt.NDArray[np.float64]) -> tuple[Whole, Whole]:
    """[questions, columns] sums over the rows that answer yes, and over the others."""
    yes = cost.sums(members)
    return yes, cost.sums(np.ones((1, members.shape[1]))) - yes


def _sides(sub: Subproblem, deeper: bool) -> tuple[list[_Side], list[_Side]]:
    """The yes and the no side with at most one leaf and, if deeper, with at most two."""
    members = sub.answers.astype(np.float64)
    sums = _both_sides(sub.cost, members)
    leaves = [side.min(axis=1) + sub.price for side in sums]
    yes, no = ([_Side(leaf, np.full(len(leaf), -1))] for leaf in leaves)
    if deeper:
        value, second = _second_questions(sub.cost, members, *sums)
        for side, leaf, v, q in zip((yes, no), leaves, value + 2 * sub.price, second, strict=True):
            side.append(_Side(np.minimum(leaf, v), np.where(v < leaf, q, -1)))
    return yes, no


def _second_questions(
    cost: Digits, members: npt.NDArray[np.float64], yes: Whole, no: Whole
) -> tuple[Whole, npt.NDArray[np.int64]]:
    """[2, questions] the least cost of two leaves on the yes and the no side, and their question's place."""
    value = np.empty((2, len(members)), dtype=yes.dtype)
    second = np.empty((2, len(members)), dtype=np.int64)
    step = max(1, _BLOCK // len(members))
    for start in range(0, len(members), step):
        block = slice(start, start + step)
        quarters = _quarters(cost, members, yes, no, block)
        for side in (0, 1):
            halves = quarters[2 * side] + quarters[2 * side + 1]
            value[side, block] = halves.min(axis=1)
            second[side, block] = halves.argmin(axis=1)
    return value, second


def _quarters(
    cost: Digits, members: npt.NDArray[np.float64], yes: Whole, no: Whole, block: slice
) -> list[Whole]:
    """[block, questions] four arrays: the least cost of one leaf for each quarter of the rows.

    The answers to a first question of the block and to a second one are yes yes, yes no, no yes and no no.
    """
    by_row = np.ascontiguousarray(members.T)
    least: list[Whole] = []
    for config in range(yes.shape[1]):
        both = cost.times(config, by_row).sums(members[block])
        second_only = yes[:, config] - both
        quarters = [
            both,
            yes[block, config, None] - both,
            second_only,
            no[block, config, None] - second_only,
        ]
        least = [np.minimum(a, b, out=a) for a, b in zip(least or quarters, quarters, strict=True)]
    return least
