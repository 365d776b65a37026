"""Run a tree over a problem's scenarios."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Tree

Ints = npt.NDArray[np.int64]


def columns(problem: Problem) -> dict[Config, int]:
    """Each config's column in the problem's costs."""
    return {config: column for column, config in enumerate(problem.configs)}


def choices(tree: Tree, problem: Problem, column: Mapping[Config, int], rows: Ints) -> Ints:
    """[rows] the columns of the configs that a tree chooses in these scenarios.

    Raises ValueError for a feature that the problem lacks, KeyError for a config that has no column.
    """
    result = np.empty(len(rows), dtype=np.int64)
    pending = [(tree, np.arange(len(rows)))]
    while pending:
        node, here = pending.pop()
        if isinstance(node, Leaf):
            result[here] = column[node.config]
            continue
        low = problem.column(node.feature)[rows[here]] <= node.threshold
        pending += [(node.low, here[low]), (node.high, here[~low])]
    return result


def costs(tree: Tree, problem: Problem) -> Ints:
    """[scenarios] the cost of what the tree chooses. Raises as `choices` does."""
    every = np.arange(len(problem.cost))
    return np.asarray(problem.cost[every, choices(tree, problem, columns(problem), every)])
