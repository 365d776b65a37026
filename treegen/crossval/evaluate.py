"""Cross-validation: how good fitted trees are on scenarios that they have not seen.

`FOLDS` and `REPEATS` are those of every held-out figure: of `treegen build`, of reports and, without options,
of `treegen eval`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem
from treegen.core.spec import Budget
from treegen.core.tree import Tree, size
from treegen.crossval.choices import Choices, Fit, decisions_of, joined, score_decisions
from treegen.crossval.folds import Fold, split_copies
from treegen.crossval.heldout import Quality, quality
from treegen.crossval.peers import classifier
from treegen.fit.significance import copies

FOLDS, REPEATS = 5, 1
_CLASSIFIER_SEEDS = range(4)


@dataclass(frozen=True)
class Evaluation:
    """Held-out figures."""

    tree: Quality
    classifier: Quality


@dataclass(frozen=True)
class FoldTree:
    """The tree that was fitted to a fold's training scenarios."""

    fold: Fold
    tree: Tree


def folds_of(problem: Problem) -> tuple[Fold, ...]:
    """The folds of a 5-fold cross-validation; none for a table whose scenarios all have the same features.

    Copies of a scenario are held out together. Of fewer than five scenarios each is held out alone.
    """
    copy = copies(problem.features)
    if copy.max() == 0:
        return ()
    return split_copies(copy, min(FOLDS, int(copy.max()) + 1), REPEATS)


def cross_validate(problem: Problem, fit: Fit) -> tuple[FoldTree, ...]:
    """The trees of a cross-validation, one for each fold."""
    return tuple(FoldTree(fold, fit(problem.rows(fold.train))) for fold in folds_of(problem))


def held_out(problem: Problem, fold_trees: Sequence[FoldTree]) -> npt.NDArray[np.int64]:
    """[REPEATS, scenarios] int64, each the cost of the choice of the tree that has not seen the scenario."""
    result = np.empty((REPEATS if fold_trees else 0, len(problem.cost)), dtype=np.int64)
    for number, fold_tree in enumerate(fold_trees):
        unseen = problem.rows(fold_tree.fold.test)
        repeat = number * REPEATS // len(fold_trees)
        result[repeat, fold_tree.fold.test] = score_decisions(
            decisions_of(fold_tree.tree, unseen), unseen
        ).cost
    return result


def evaluate(problem: Problem, fold_trees: Sequence[FoldTree]) -> Evaluation | None:
    """Held-out figures of our trees and of a classifier; None for fewer than ten scenarios, or copies of one.

    The classifier is scikit-learn's DecisionTreeClassifier, trained on the winners. It has the same features,
    the same depth limit and as many leaves as our tree of that fold. It breaks ties at random, so its figures
    are means over seeds.
    """
    if not fold_trees or len(problem.cost) < 2 * FOLDS:
        return None
    theirs = []
    for fold_tree in fold_trees:
        known, unseen = problem.rows(fold_tree.fold.train), problem.rows(fold_tree.fold.test)
        budget = Budget(problem.kernel.budget.max_depth, size(fold_tree.tree))
        rules = [classifier(known, budget, seed) for seed in _CLASSIFIER_SEEDS]
        theirs += [score_decisions(rule.choose(unseen), unseen) for rule in rules]
    cost, cells = held_out(problem, fold_trees), problem.table.cells
    ours = Choices(cost.ravel(), problem.scenarios * len(cost))
    return Evaluation(quality(ours, cells), quality(joined(theirs), cells))
