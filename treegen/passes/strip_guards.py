"""Pass: undo `guards`, so that a tree read from a module is again what was fitted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem
from treegen.core.tree import Leaf, Split, Tree
from treegen.passes.simplify import simplify

Rows = npt.NDArray[np.int64]


def strip_guards(tree: Tree, problem: Problem) -> Tree:
    """The tree, simplified, without guards: without each split one side of which is the fallback config alone
    and is reached by no scenario of the problem.

    What no scenario reaches for another reason stays: a tree may know of scenarios that this table lacks.
    Splits get their gaps again, from the scenarios that reach them.
    """
    return simplify(_unguarded(simplify(tree), problem, np.arange(len(problem.cost))))


def _unguarded(tree: Tree, problem: Problem, rows: Rows) -> Tree:
    if isinstance(tree, Leaf):
        return tree
    outside = Leaf(problem.kernel.fallback)
    known = tree.feature in problem.names
    values = problem.column(tree.feature)[rows] if known else np.empty(0, dtype=np.int64)
    is_low = values <= tree.threshold
    below, above = values[is_low], values[~is_low]
    if tree.low == outside and not len(below):
        return _unguarded(tree.high, problem, rows)
    if tree.high == outside and not len(above):
        return _unguarded(tree.low, problem, rows)
    if not known:
        return tree  # it was fitted to another table
    gap = (int(below.max()), int(above.min())) if len(below) and len(above) else None
    low, high = (
        _unguarded(side, problem, rows[at]) for side, at in ((tree.low, is_low), (tree.high, ~is_low))
    )
    return Split(tree.feature, tree.threshold, low, high, gap)
