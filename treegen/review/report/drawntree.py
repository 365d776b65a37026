"""A tree as it is drawn: questions in words, what reaches each leaf, and guards set apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNMEASURED, Problem
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split, Tree, depth, halves, size
from treegen.review.words import range_words, region_words

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Launch:
    """A leaf. cost: [scenarios that reach it] int64, as in Problem."""

    config: Config
    cost: Ints

    @property
    def timed(self) -> Ints:
        return self.cost[self.cost < UNMEASURED]


@dataclass(frozen=True)
class Branch:
    """A side of a question, which `words` answer. guards: the shapes that leave for the fallback right here,
    in words; no scenario is among them."""

    words: str
    guards: tuple[str, ...]
    then: Launch | Question


@dataclass(frozen=True)
class Question:
    low: Branch
    high: Branch


@dataclass(frozen=True)
class Drawn:
    """A whole tree. root: its words are empty. depth, leaves: of the tree with its guards, as committed."""

    root: Branch
    depth: int
    leaves: int

    def launches(self) -> Iterator[Launch]:
        """The leaves without those of guards, low side first."""
        pending: list[Launch | Question] = [self.root.then]
        while pending:
            node = pending.pop()
            if isinstance(node, Launch):
                yield node
            else:
                pending += [node.high.then, node.low.then]


def drawn(tree: Tree, problem: Problem, cost: Ints) -> Drawn:
    """cost: [scenarios] of what the tree launches there. It asks only what the problem's scenarios know."""
    root = _branch(tree, "", problem, np.arange(len(problem.cost)), cost)
    return Drawn(root, depth(tree), size(tree))


def _branch(tree: Tree, words: str, problem: Problem, rows: Ints, cost: Ints) -> Branch:
    guards: dict[str, list[str]] = {}
    while isinstance(tree, Split):
        sides = _sides(tree, problem, rows)
        outside = [side for side in sides if side[0] == Leaf(problem.kernel.fallback) and not len(side[2])]
        if len(outside) != 1:
            break
        word = problem.kernel.words.get(tree.feature, tree.feature)
        guards.setdefault(word, []).append(_bounds(tree, low=outside[0] is sides[0]))
        tree, _, rows = next(side for side in sides if side is not outside[0])
    told = tuple(f"{word} {' or '.join(bounds)}" for word, bounds in guards.items())
    if isinstance(tree, Leaf):
        return Branch(words, told, Launch(tree.config, cost[rows]))
    low, high = (_branch(side, text, problem, at, cost) for side, text, at in _sides(tree, problem, rows))
    return Branch(words, told, Question(low, high))


def _bounds(split: Split, *, low: bool) -> str:
    """The values on one side of a split in words."""
    return range_words(None, split.threshold) if low else range_words(split.threshold + 1, None)


def _sides(split: Split, problem: Problem, rows: Ints) -> list[tuple[Tree, str, Ints]]:
    """Low and high side: its tree, the answer in words, the scenarios that go there."""
    low, high = (region_words(region, problem.kernel) for region in halves(split, {}))
    if not len(rows):  # a feature may be one that no scenario knows
        return [(split.low, low, rows), (split.high, high, rows)]
    is_low = problem.column(split.feature)[rows] <= split.threshold
    return [(split.low, low, rows[is_low]), (split.high, high, rows[~is_low])]
