"""Pass: remove the guards of a tree that was read from a module, which leaves the fitted tree."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem
from treegen.core.tree import Leaf, Split, Tree
from treegen.passes.guards import outside_of
from treegen.passes.simplify import simplify

Rows = npt.NDArray[np.int64]


def strip_guards(tree: Tree, problem: Problem) -> Tree:
    """The tree, simplified, without its guards.

    `guards.outside_of` says what a guard is. Other parts that no scenario reaches stay: the tree may come
    from a table with more scenarios. Splits get their gaps from the scenarios that reach them.
    """
    return simplify(_stripped(simplify(tree), problem, np.arange(len(problem.cost))))


def _stripped(tree: Tree, problem: Problem, rows: Rows) -> Tree:
    if isinstance(tree, Leaf):
        return tree
    known = tree.feature in problem.names
    values = problem.column(tree.feature)[rows] if known else np.empty(0, dtype=np.int64)
    is_low = values <= tree.threshold
    below, above = values[is_low], values[~is_low]
    outside = outside_of(tree, len(below) > 0, len(above) > 0, problem)
    if outside is not None:
        return _stripped(tree.high if outside is tree.low else tree.low, problem, rows)
    if not known:
        return tree  # the tree was fitted to another table
    gap = (int(below.max()), int(above.min())) if len(below) and len(above) else None
    low, high = _stripped(tree.low, problem, rows[is_low]), _stripped(tree.high, problem, rows[~is_low])
    return Split(tree.feature, tree.threshold, low, high, gap)
