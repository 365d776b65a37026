"""Branch and bound over questions; every subproblem is solved once.

A subproblem is a set of rows with a limit of depth and of leaves. Solutions and bounds are kept by the set of
rows (DL8.5: Aglin, Nijssen, Schaus, AAAI 2020) and serve other limits where they hold there, too (MurTree:
Demirović et al., JMLR 23, 2022). Of the questions at a node the one with the lowest bound is tried first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt

from benchmarks.fit.prover.optimal_depth2 import Subproblem, ValuedTree, distinct, relaxed, shallow
from benchmarks.fit.prover.optimal_sides import Sides
from benchmarks.fit.prover.optimal_sums import digits
from treegen.fit.index_tree import IndexTree, count_leaves

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

_MOST_PAIRED = 32  # configs; of more there are too many pairs for the relaxation to pay


@dataclass(frozen=True, slots=True)
class Solution:
    """lower: no tree within the limits has a lower value. best: the best tree seen, if any. solved: it is the
    optimum, and of equal values the tree whose questions come first."""

    lower: int
    best: ValuedTree | None
    solved: bool


@dataclass(slots=True)
class _KnownSolutions:
    """What is known of a set of rows at a depth: answers by the limit of leaves, and a bound for all."""

    lower: int
    answers: dict[int, Solution] = field(default_factory=dict)

    def recall(self, leaves: int) -> Solution:
        """What follows for this limit: what holds for more leaves, and the optimum if it needs no more."""
        lower = self.lower
        for limit, answer in self.answers.items():
            if limit >= leaves:
                if answer.solved and answer.best and count_leaves(answer.best.tree) <= leaves:
                    return answer
                lower = max(lower, answer.lower)
        own = self.answers.get(leaves)
        return Solution(lower, own.best if own else None, False)


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

        rows: [all rows] which, one at least; ids: the questions that may be asked. The answer is solved if a
        tree has a value of at most `limit`; else its bound is above that, unless the nodes ran out.
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
            wanted = _wanted(best, limit, sub.ids)
            choice = sides.choose(wanted, ahead.rank)
            if choice is None:
                break
            question, budget = choice
            if question not in glanced:
                glanced.add(question)
                for side in (question, question + len(sub.ids)):
                    self._glance(_part(rows, sides.inside[side]), sides, side, sub.ids, depth - 1)
                continue
            tree, ran_out = self._try(rows, sub, sides, question, budget, depth - 1, int(wanted[question]))
            best = _better(best, tree)
        lower = min(best.value, int(sides.totals().min()))
        return Solution(lower, best, not ran_out and best.value <= limit)

    def _glance(self, rows: Bools, sides: Sides, side: int, ids: Ints, depth: int) -> None:
        """Learn what is known of a side or cheap to know."""
        known = self._of(rows, depth)
        if self._paired and depth == 2 and known.lower == self._price and not known.answers:
            pairs = self._pairs.rows(rows)
            known.lower = relaxed(self._subproblem(rows, ids), pairs, self._pair_prices)
        self._learn(known, sides, side)

    def _learn(self, known: _KnownSolutions, sides: Sides, side: int) -> None:
        sides.learn(side, np.array([known.recall(leaves).lower for leaves in sides.budgets]))

    def _try(
        self, rows: Bools, sub: Subproblem, sides: Sides, question: int, budget: int, depth: int, wanted: int
    ) -> tuple[ValuedTree | None, bool]:
        """Solve both sides of a question, if a tree of at most the value `wanted` may come of it.

        Returns such a tree as far as there is one, and whether the nodes ran out.
        """
        yes, no = (question, budget), (question + len(sub.ids), len(sides.budgets) - 1 - budget)
        larger_first = [yes, no] if 2 * sub.answers[question].sum() >= sub.answers.shape[1] else [no, yes]
        trees: dict[int, ValuedTree | None] = {}
        for (side, place), other in zip(larger_first, larger_first[::-1], strict=True):
            part = _part(rows, sides.inside[side])
            limit = wanted - int(sides.lower[other])
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
    """[all rows] those of `rows` that are inside. inside: [rows]."""
    part = rows.copy()
    part[rows] = inside
    return part


def _better(one: ValuedTree, other: ValuedTree | None) -> ValuedTree:
    """The lower value; of equal ones the tree whose questions come first."""
    if other is None or other.value > one.value:
        return one
    if other.value == one.value and _preorder(one.tree) <= _preorder(other.tree):
        return one
    return other


def _wanted(best: ValuedTree, limit: int, ids: Ints) -> Ints:
    """[questions] the greatest value of interest: one that is better, or as good with no later question."""
    if best.value > limit:
        return np.full(len(ids), limit)
    return np.where(ids <= _preorder(best.tree)[0], best.value, best.value - 1)
