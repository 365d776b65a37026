"""Cross-validation: how good fitted trees are on scenarios that they have not seen.

Every held-out figure has five folds and one shuffle: of `treegen build`, of reports and, without options, of
`treegen eval`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import RepeatedKFold

from treegen.core.problem import Problem
from treegen.core.spec import Budget
from treegen.core.tree import Tree, size
from treegen.crossval.choices import Choices, Fit, Quality, decisions_of, joined, quality, score_decisions
from treegen.crossval.peers import classifier
from treegen.fit.costs import copies

FOLDS = 5
_SEED = 0
_CLASSIFIER_SEEDS = range(4)


@dataclass(frozen=True)
class Fold:
    """Ascending rows of a problem, each array [scenarios] int64."""

    train: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]


@dataclass(frozen=True)
class FoldTree:
    """The tree that was fitted to a fold's training scenarios."""

    fold: Fold
    tree: Tree


@dataclass(frozen=True)
class Evaluation:
    """Held-out figures."""

    tree: Quality
    classifier: Quality


def split_copies(copies: npt.NDArray[np.int64], folds: int, repeats: int) -> tuple[Fold, ...]:
    """Repeated k-fold cross-validation: every repeat shuffles anew and holds out each scenario once.

    Copies of a scenario stay together, so that no held-out scenario was seen in training.

    copies: [scenarios], equal for copies; all numbers from 0 to the greatest.
    """
    splitter = RepeatedKFold(n_splits=folds, n_repeats=repeats, random_state=_SEED)
    sides = splitter.split(np.empty(int(copies.max()) + 1))
    return tuple(Fold(*(np.flatnonzero(np.isin(copies, side)) for side in pair)) for pair in sides)


def folds_of(problem: Problem) -> tuple[Fold, ...]:
    """The folds of a 5-fold cross-validation; none for a table whose scenarios all have the same features.

    Of fewer than five scenarios each is held out alone.
    """
    copy = copies(problem.features)
    if copy.max() == 0:
        return ()
    return split_copies(copy, min(FOLDS, int(copy.max()) + 1), 1)


def cross_validate(problem: Problem, fit: Fit) -> tuple[FoldTree, ...]:
    """The trees of a cross-validation, one for each fold."""
    return tuple(FoldTree(fold, fit(problem.rows(fold.train))) for fold in folds_of(problem))


def held_out(problem: Problem, fold_trees: Sequence[FoldTree]) -> npt.NDArray[np.int64]:
    """[1, scenarios] int64, the cost of the choice of the tree that has not seen it; none of no trees."""
    cost = np.empty((min(1, len(fold_trees)), len(problem.cost)), dtype=np.int64)
    for fold_tree in fold_trees:
        unseen = problem.rows(fold_tree.fold.test)
        cost[0, fold_tree.fold.test] = score_decisions(decisions_of(fold_tree.tree, unseen), unseen).cost
    return cost


def held_out_quality(problem: Problem, fold_trees: Sequence[FoldTree]) -> Quality | None:
    """The held-out figures of our trees; None for fewer than ten scenarios, or copies of one."""
    if not fold_trees or len(problem.cost) < 2 * FOLDS:
        return None
    return quality(Choices(held_out(problem, fold_trees)[0], problem.scenarios), problem.table.cells)


def evaluate(problem: Problem, fold_trees: Sequence[FoldTree]) -> Evaluation | None:
    """Held-out figures of our trees and of a classifier; None where ours has none.

    The classifier is scikit-learn's DecisionTreeClassifier, trained on the winners. It has the same features,
    the same depth limit and as many leaves as our tree of that fold. It breaks ties at random, so its figures
    are means over seeds.
    """
    ours = held_out_quality(problem, fold_trees)
    if ours is None:
        return None
    theirs = []
    for fold_tree in fold_trees:
        known, unseen = problem.rows(fold_tree.fold.train), problem.rows(fold_tree.fold.test)
        budget = Budget(problem.kernel.budget.max_depth, size(fold_tree.tree))
        rules = [classifier(known, budget, seed) for seed in _CLASSIFIER_SEEDS]
        theirs += [score_decisions(rule.choose(unseen), unseen) for rule in rules]
    return Evaluation(ours, quality(joined(theirs), problem.table.cells))
