"""Branch and bound over questions; every subproblem is solved once.

A subproblem is a set of rows with a limit of depth and of leaves. Solutions and bounds are kept by the set of
rows (DL8.5: Aglin, Nijssen, Schaus, AAAI 2020). They are reused under other limits for which they hold
(MurTree: Demirović et al., JMLR 23, 2022). A node tries the question with the lowest bound first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt

from benchmarks.fit.prover.optimal_depth2 import Subproblem, ValuedTree, distinct, relaxed, shallow
from benchmarks.fit.prover.optimal_sides import Sides
from benchmarks.fit.prover.optimal_sums import digits
from treegen.fit.training_set import IndexTree, count_leaves

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_MOST_PAIRED = 32  # configs; with more, computing the relaxation over pairs costs more than it saves


@dataclass(frozen=True, slots=True)
class Solution:
    """A bound, and the best tree so far."""

    lower: int  # no tree within the limits has a lower value
    best: ValuedTree | None
    solved: bool  # `best` is the optimum; among equal optima, the tree whose questions come first


@dataclass(slots=True)
class _KnownSolutions:
    """The solutions known for a set of rows at a depth."""

    lower: int  # a bound for every number of leaves
    answers: dict[int, Solution] = field(default_factory=dict)  # by the limit of leaves

    def recall(self, leaves: int) -> Solution:
        """The solution for this limit: the optimum of a higher one if it fits, else the best known bound."""
        lower = self.lower
        for limit, answer in self.answers.items():
            if limit >= leaves:
                if answer.solved and answer.best and count_leaves(answer.best.tree) <= leaves:
                    return answer
                lower = max(lower, answer.lower)
        best = self.answers[leaves].best if leaves in self.answers else None
        return Solution(lower, best, False)


class Search:
    """Solves subproblems of one table until it has visited `most_nodes` of them.

    answers: [questions, rows]; cost: [rows, configs], not negative; price: of a leaf.
    """

    def __init__(self, answers: Bools, cost: Ints, price: int, most_nodes: int) -> None:
        self.nodes = 0
        self._most_nodes = most_nodes
        self._answers = answers
        self._cost = digits(cost)
        self._worst = digits(cost.max(axis=1, keepdims=True))
        self._price = price
        self._known: dict[tuple[bytes, int], _KnownSolutions] = {}
        configs = range(cost.shape[1])
        self._paired = len(configs) <= _MOST_PAIRED
        if self._paired:
            first, second = np.array([*zip(configs, configs, strict=True), *combinations(configs, 2)]).T
            self._pairs = digits(np.minimum(cost[:, first], cost[:, second]))
            self._pair_prices = np.where(first == second, price, 2 * price)

    def solve(self, rows: Bools, ids: Ints, depth: int, leaves: int, limit: int) -> Solution:
        """The best tree for some rows, or a bound.

        The answer is solved if a tree has a value of at most `limit`. Otherwise its bound is above the limit,
        unless the search ran out of nodes.

        Args:
            rows: [all rows] the rows of the subproblem, at least one
            ids: the questions that the tree may use
            depth: the greatest depth of the tree
            leaves: the greatest number of leaves
            limit: the greatest value of interest
        """
        leaves = min(leaves, 1 << depth)
        known = self._of(rows, depth)
        answer = known.recall(leaves)
        if answer.solved or answer.lower > limit or self.nodes >= self._most_nodes:
            return answer
        self.nodes += 1
        sub = self._subproblem(rows, ids)
        if min(depth, leaves - 1) <= 2:
            trees = shallow(sub, leaves).best
            known.answers.update({n: Solution(tree.value, tree, True) for n, tree in enumerate(trees, 1)})
        else:
            known.answers[leaves] = self._branch(rows, sub, depth, leaves, limit, answer)
        return known.recall(leaves)

    def _of(self, rows: Bools, depth: int) -> _KnownSolutions:
        return self._known.setdefault((np.packbits(rows).tobytes(), depth), _KnownSolutions(self._price))

    def _subproblem(self, rows: Bools, ids: Ints) -> Subproblem:
        answers = self._answers[np.ix_(ids, rows)]
        kept = distinct(answers)
        return Subproblem(ids[kept], answers[kept], self._cost.rows(rows), self._price)

    def _branch(
        self, rows: Bools, sub: Subproblem, depth: int, leaves: int, limit: int, before: Solution
    ) -> Solution:
        ahead = shallow(sub, leaves)
        best = _better(ahead.best[-1], before.best)
        if not len(sub.ids):
            return Solution(best.value, best, True)
        half = 1 << (depth - 1)
        budgets = range(max(1, leaves - half), min(half, leaves - 1) + 1)
        sides = Sides(sub.answers, budgets, self._price, self._worst.rows(rows))
        glanced: set[int] = set()
        ran_out = False
        while not ran_out:
            targets = _targets(best, limit, sub.ids)
            choice = sides.choose(targets, ahead.rank)
            if choice is None:
                break
            question, budget = choice
            if question not in glanced:
                glanced.add(question)
                for side in (question, question + len(sub.ids)):
                    self._glance(_part(rows, sides.inside[side]), sides, side, sub.ids, depth - 1)
                continue
            tree, ran_out = self._try(rows, sub, sides, question, budget, depth - 1, int(targets[question]))
            best = _better(best, tree)
        lower = min(best.value, int(sides.totals().min()))
        return Solution(lower, best, not ran_out and best.value <= limit)

    def _glance(self, rows: Bools, sides: Sides, side: int, ids: Ints, depth: int) -> None:
        """Record the known bounds of a side, after a cheap relaxation where none is known."""
        known = self._of(rows, depth)
        if self._paired and depth == 2 and known.lower == self._price and not known.answers:
            pairs = self._pairs.rows(rows)
            known.lower = relaxed(self._subproblem(rows, ids), pairs, self._pair_prices)
        self._learn(known, sides, side)

    def _learn(self, known: _KnownSolutions, sides: Sides, side: int) -> None:
        sides.learn(side, np.array([known.recall(leaves).lower for leaves in sides.budgets]))

    def _try(
        self, rows: Bools, sub: Subproblem, sides: Sides, question: int, budget: int, depth: int, target: int
    ) -> tuple[ValuedTree | None, bool]:
        """Solve both sides of a question while a tree of value `target` or less is possible.

        Returns the tree, if both sides have one, and whether the search ran out of nodes.
        """
        yes, no = (question, budget), (question + len(sub.ids), len(sides.budgets) - 1 - budget)
        larger_first = [yes, no] if 2 * sub.answers[question].sum() >= sub.answers.shape[1] else [no, yes]
        trees: dict[int, ValuedTree | None] = {}
        for (side, place), other in zip(larger_first, larger_first[::-1], strict=True):
            part = _part(rows, sides.inside[side])
            limit = target - int(sides.lower[other])
            answer = self.solve(part, sub.ids, depth, sides.budgets[place], limit)
            self._learn(self._of(part, depth), sides, side)
            trees[side] = answer.best
            if not answer.solved:
                break
        else:
            sides.done[question, budget] = True
        on_yes, on_no = trees.get(yes[0]), trees.get(no[0])
        tree = None
        if on_yes and on_no:
            tree = ValuedTree(on_yes.value + on_no.value, (int(sub.ids[question]), on_yes.tree, on_no.tree))
        return tree, not answer.solved and answer.lower <= limit


def _preorder(tree: IndexTree) -> tuple[int, ...]:
    """The questions, each before those of its yes side, these before those of its no side; -1 for a leaf."""
    return (tree[0], *_preorder(tree[1]), *_preorder(tree[2])) if isinstance(tree, tuple) else (-1,)


def _part(rows: Bools, inside: Bools) -> Bools:
    """[all rows] the members of `rows` that are inside; inside: [rows]."""
    part = rows.copy()
    part[rows] = inside
    return part


def _better(tree: ValuedTree, other: ValuedTree | None) -> ValuedTree:
    """The tree of lower value; of two equal ones, the tree whose questions come first."""
    if other is None or other.value > tree.value:
        return tree
    if other.value == tree.value and _preorder(tree.tree) <= _preorder(other.tree):
        return tree
    return other


def _targets(best: ValuedTree, limit: int, ids: Ints) -> Ints:
    """[questions] the greatest value of interest.

    A tree must be better than `best`, or as good with no later question at its root.
    """
    if best.value > limit:
        return np.full(len(ids), limit)
    return np.where(ids <= _preorder(best.tree)[0], best.value, best.value - 1)
