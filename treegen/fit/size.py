"""How many leaves a table supports: cross-validation inside the table (Breiman et al. 1984, section 3.4)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import RepeatedKFold

from treegen.fit.apply import costs
from treegen.fit.dominated import undominated
from treegen.fit.grow import grow
from treegen.passes.thresholds import readable_thresholds
from treegen.problem import FORBIDDEN, UNIT, Problem, charged
from treegen.spec import Budget
from treegen.tree import Tree

FOLDS, REPEATS, SEED = 5, 4, 0

_FAILED_COUNTS_AS = 4 * UNIT


def fit(problem: Problem, budget: Budget) -> Tree:
    """The tree of the size that loses least on scenarios it has not seen.

    Every size within the budget is judged by repeated 5-fold cross-validation within the table; of equally
    good sizes the smallest wins. If that size would choose a config that failed in some scenario, the tree
    grows on until it does not, or as far as the budget goes. Thresholds are readable already.
    """
    candidates = undominated(problem)
    trees = [readable_thresholds(tree) for tree in grow(problem, budget, candidates)]
    leaves = min(_supported_leaves(problem, budget, candidates), len(trees)) if len(trees) > 1 else 1
    failing = [int((costs(tree, problem) >= FORBIDDEN).sum()) for tree in trees[leaves - 1 :]]
    return trees[leaves - 1 + failing.index(min(failing))]


def _supported_leaves(problem: Problem, budget: Budget, candidates: npt.NDArray[np.int64]) -> int:
    if len(problem.cost) < 2 * FOLDS:
        return budget.max_leaves
    loss = np.zeros(budget.max_leaves, dtype=np.int64)
    for train, test in RepeatedKFold(n_splits=FOLDS, n_repeats=REPEATS, random_state=SEED).split(
        problem.cost
    ):
        held_out = problem.rows(test)
        trees = grow(problem.rows(train), budget, candidates)
        trees += trees[-1:] * (budget.max_leaves - len(trees))  # a tree that stopped stands for larger sizes
        for size, tree in enumerate(trees):
            lost = charged(costs(readable_thresholds(tree), held_out))
            loss[size] += np.minimum(lost, _FAILED_COUNTS_AS).sum()
    return int(np.argmin(loss)) + 1
