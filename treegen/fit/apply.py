"""Run a tree over a problem's scenarios."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from treegen.problem import Problem
from treegen.tree import Leaf, Tree


def costs(tree: Tree, problem: Problem) -> npt.NDArray[np.int64]:
    """[scenarios] the cost of what the tree chooses.

    The tree must come from fitting this table: it asks only about measured features and chooses only
    configs that the table holds.
    """
    index = {config: i for i, config in enumerate(problem.configs)}
    result = np.zeros(len(problem.cost), dtype=np.int64)
    pending = [(tree, np.arange(len(problem.cost)))]
    while pending:
        node, rows = pending.pop()
        if isinstance(node, Leaf):
            result[rows] = problem.cost[rows, index[node.config]]
            continue
        low = problem.column(node.feature)[rows] <= node.threshold
        pending += [(node.low, rows[low]), (node.high, rows[~low])]
    return result
