"""A tree for drawing: splits in words, the scenarios that reach each leaf, and guards set apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split, Tree, depth, halves, leaves, size
from treegen.passes.guards import outside_of
from treegen.review.printing import bounds_words, region_words

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DrawnLeaf:
    """A leaf. cost: [scenarios that reach it] int64, as in Problem."""

    config: Config
    cost: Ints


@dataclass(frozen=True)
class DrawnNode:
    """One side of a split: either a leaf, or the low and the high side of the next split."""

    words: str  # the side in words; empty for the root
    guards: tuple[str, ...]  # shapes beyond guards right here, and what they get; no scenario is among them
    leaf: DrawnLeaf | None
    sides: tuple[DrawnNode, ...] = ()


@dataclass(frozen=True)
class DrawnTree:
    """A whole tree. depth, leaves: of the committed tree, guards included."""

    root: DrawnNode
    depth: int
    leaves: int

    def all_leaves(self) -> Iterator[DrawnLeaf]:
        """The leaves without those of guards, low side first."""
        pending = [self.root]
        while pending:
            node = pending.pop()
            if node.leaf is not None:
                yield node.leaf
            pending += reversed(node.sides)


def drawn_tree(tree: Tree, problem: Problem, cost: Ints) -> DrawnTree:
    """Draw a tree. cost: [scenarios] int64 of the config that the tree launches there."""
    root = _node(tree, "", problem, np.arange(len(problem.cost)), cost)
    return DrawnTree(root, depth(tree), size(tree))


def _node(tree: Tree, words: str, problem: Problem, rows: Ints, cost: Ints) -> DrawnNode:
    bounds: dict[str, dict[str, list[str]]] = {}  # by the configs that are launched beyond, and by feature
    while isinstance(tree, Split):
        low, high = _sides(tree, problem, rows)
        outside = outside_of(tree, len(low[2]) > 0, len(high[2]) > 0, problem)
        if outside is None:
            break
        is_low = outside is tree.low
        least, greatest = (None, tree.threshold) if is_low else (tree.threshold + 1, None)
        bound = bounds_words(tree.feature, least, greatest, problem.kernel)
        word = problem.kernel.words.get(tree.feature, tree.feature)
        configs = dict.fromkeys(problem.kernel.constant_name(leaf.config) for leaf, _ in leaves(outside))
        of_configs = bounds.setdefault(" or ".join(configs), {})
        of_configs.setdefault(word, []).append(bound)
        tree, _, rows = high if is_low else low
    guards = tuple(f"{_guarded(of_configs)}: {names}" for names, of_configs in bounds.items())
    if isinstance(tree, Leaf):
        return DrawnNode(words, guards, DrawnLeaf(tree.config, cost[rows]))
    sides = (_node(side, text, problem, at, cost) for side, text, at in _sides(tree, problem, rows))
    return DrawnNode(words, guards, None, tuple(sides))


def _guarded(bounds: Mapping[str, Sequence[str]]) -> str:
    """Bounds in words, by feature."""
    return "; ".join(f"{word} {' or '.join(parts)}" for word, parts in bounds.items())


def _sides(split: Split, problem: Problem, rows: Ints) -> list[tuple[Tree, str, Ints]]:
    """Low and high side: its tree, its values in words, the scenarios that go there."""
    low, high = (region_words(region, problem.kernel) for region in halves(split, {}))
    if not len(rows):  # the table may lack the feature
        return [(split.low, low, rows), (split.high, high, rows)]
    is_low = problem.column(split.feature)[rows] <= split.threshold
    return [(split.low, low, rows[is_low]), (split.high, high, rows[~is_low])]
