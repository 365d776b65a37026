"""Cross-validation: how good fitted trees are on scenarios that they have not seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT, UNTIMED, Problem
from treegen.core.spec import Budget
from treegen.core.table import Cells
from treegen.core.tree import Tree, size
from treegen.crossval.choices import Fit, decisions_of, score_decisions
from treegen.crossval.folds import Fold, split_copies
from treegen.crossval.peers import classifier
from treegen.fit.significance import copies

FOLDS, REPEATS = 5, 1
_CLASSIFIER_SEEDS = range(4)


@dataclass(frozen=True)
class HeldOut:
    """Held-out figures of one method."""

    agreement: float  # share of the choices that are the fastest measured config
    slowdown: float | None  # geometric mean of time over best time, of timed choices; None for a winner table
    untimed: float = 0.0  # share of the choices that failed, were not measured or break a constraint


@dataclass(frozen=True)
class Evaluation:
    tree: HeldOut
    classifier: HeldOut


@dataclass(frozen=True)
class FoldTree:
    """The tree that was fitted to a fold's training scenarios."""

    fold: Fold
    tree: Tree


def cross_validate(problem: Problem, fit: Fit) -> tuple[FoldTree, ...]:
    """The trees of a 5-fold cross-validation; none for a table whose scenarios all have the same features.

    Copies of a scenario are held out together. Of fewer than five scenarios each is held out alone.
    """
    copy = copies(problem.features)
    if copy.max() == 0:
        return ()
    folds = split_copies(copy, min(FOLDS, int(copy.max()) + 1), REPEATS)
    return tuple(FoldTree(fold, fit(problem.rows(fold.train))) for fold in folds)


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
    """Held-out figures of our trees and of a classifier; None for a table of fewer than ten scenarios.

    The classifier is scikit-learn's DecisionTreeClassifier, trained on the winners. It has the same features,
    the same depth limit and as many leaves as our tree of that fold. It breaks ties at random, so its figures
    are means over seeds.
    """
    if len(problem.cost) < 2 * FOLDS:
        return None
    theirs = []
    for fold_tree in fold_trees:
        known, unseen = problem.rows(fold_tree.fold.train), problem.rows(fold_tree.fold.test)
        budget = Budget(problem.kernel.budget.max_depth, size(fold_tree.tree))
        rules = [classifier(known, budget, seed) for seed in _CLASSIFIER_SEEDS]
        theirs += [score_decisions(rule.choose(unseen), unseen).cost for rule in rules]
    ours, cells = held_out(problem, fold_trees).ravel(), problem.table.cells
    return Evaluation(_summary(ours, cells), _summary(np.concatenate(theirs), cells))


def _summary(cost: npt.NDArray[np.int64], cells: Cells) -> HeldOut:
    agreement = float(np.mean(cost == 0))
    if cells is Cells.WINNERS:
        return HeldOut(agreement, None)
    timed = cost[cost < UNTIMED]
    slowdown = math.exp(float(timed.mean()) / UNIT) if len(timed) else math.inf
    return HeldOut(agreement, slowdown, 1 - len(timed) / len(cost))
