"""How good a tree is on scenarios that it has not seen, beside scikit-learn's classifier of the same size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT, UNMEASURED, Problem
from treegen.core.spec import Budget
from treegen.core.table import Cells
from treegen.core.tree import Tree, size
from treegen.crossval.choices import Fit, decide, judge
from treegen.crossval.folds import Fold, split_copies
from treegen.crossval.peers import classifier
from treegen.fit.significance import copies

FOLDS, REPEATS = 5, 1
_CLASSIFIER_SEEDS = range(4)


@dataclass(frozen=True)
class HeldOut:
    """One way of choosing, on held-out scenarios. For a table of winners `agreement` is the share of
    scenarios in which it chose the winner and `slowdown` is None; for a measured table `slowdown` is the
    geometric mean of time over best time, `agreement` the share in which it chose the fastest config, and
    `untimed` the share in which it chose a config that failed, was not measured or breaks a
    constraint there, which no mean can hold.
    """

    agreement: float
    slowdown: float | None
    untimed: float = 0.0


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
    """5-fold cross-validation of the whole fit; none of a table with a single scenario.

    Copies of a scenario are held out together. Of fewer than five scenarios each is held out by itself.
    """
    copy = copies(problem.features)
    if copy.max() == 0:
        return ()
    folds = split_copies(copy, min(FOLDS, int(copy.max()) + 1), REPEATS)
    return tuple(FoldTree(fold, fit(problem.rows(fold.train))) for fold in folds)


def held_out(problem: Problem, fold_trees: Sequence[FoldTree]) -> npt.NDArray[np.int64]:
    """[REPEATS, scenarios] int64, costs of the choices of the trees that have not seen the scenario."""
    result = np.empty((REPEATS if fold_trees else 0, len(problem.cost)), dtype=np.int64)
    for number, one in enumerate(fold_trees):
        unseen = problem.rows(one.fold.test)
        repeat = number * REPEATS // len(fold_trees)
        result[repeat, one.fold.test] = judge(decide(one.tree, unseen), unseen).cost
    return result


def evaluate(problem: Problem, fold_trees: Sequence[FoldTree]) -> Evaluation | None:
    """Held-out figures of our trees and of a classifier; None for a table that is too small.

    The classifier is scikit-learn's DecisionTreeClassifier on the winners, with the same features, as many
    leaves as ours has in that fold and the same depth limit, averaged over seeds as it breaks ties at random.
    """
    if len(problem.cost) < 2 * FOLDS:
        return None
    theirs = []
    for one in fold_trees:
        known, unseen = problem.rows(one.fold.train), problem.rows(one.fold.test)
        budget = Budget(problem.kernel.budget.max_depth, size(one.tree))
        rules = [classifier(known, budget, seed) for seed in _CLASSIFIER_SEEDS]
        theirs += [judge(rule.choose(unseen), unseen).cost for rule in rules]
    ours, cells = held_out(problem, fold_trees).ravel(), problem.table.cells
    return Evaluation(_summary(ours, cells), _summary(np.concatenate(theirs), cells))


def _summary(lost: npt.NDArray[np.int64], cells: Cells) -> HeldOut:
    agreement = float(np.mean(lost == 0))
    if cells is Cells.WINNERS:
        return HeldOut(agreement, None)
    timed = lost[lost < UNMEASURED]
    slowdown = math.exp(float(timed.mean()) / UNIT) if len(timed) else math.inf
    return HeldOut(agreement, slowdown, 1 - len(timed) / len(lost))
