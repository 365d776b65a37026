"""How good a tree is on scenarios that it has not seen, beside scikit-learn's classifier of the same size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.compiler import fit_tree
from treegen.evaluation.choices import Fit, decide, judge
from treegen.evaluation.folds import Fold, split_copies
from treegen.evaluation.peers import classifier
from treegen.fit.significance import copies
from treegen.problem import UNIT, UNMEASURED, Problem
from treegen.spec import Budget
from treegen.table import Cells
from treegen.tree import Tree, size

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
class Learnt:
    """The tree that was fitted to a fold's training scenarios."""

    fold: Fold
    tree: Tree


def cross_validate(problem: Problem, fit: Fit = fit_tree) -> tuple[Learnt, ...]:
    """5-fold cross-validation of the whole fit; none of a table with a single scenario.

    Copies of a scenario are held out together. Of fewer than five scenarios each is held out by itself.
    """
    copy = copies(problem.features)
    if copy.max() == 0:
        return ()
    folds = split_copies(copy, min(FOLDS, int(copy.max()) + 1), REPEATS)
    return tuple(Learnt(fold, fit(problem.rows(fold.train))) for fold in folds)


def held_out(problem: Problem, learnt: Sequence[Learnt]) -> npt.NDArray[np.int64]:
    """[REPEATS, scenarios] int64, costs of the choices of the trees that have not seen the scenario."""
    result = np.empty((REPEATS if learnt else 0, len(problem.cost)), dtype=np.int64)
    for number, one in enumerate(learnt):
        unseen = problem.rows(one.fold.test)
        repeat = number * REPEATS // len(learnt)
        result[repeat, one.fold.test] = judge(decide(one.tree, unseen), unseen).cost
    return result


def evaluate(problem: Problem, learnt: Sequence[Learnt] | None = None) -> Evaluation | None:
    """What `cross_validate` tells, which is done here where it was not yet; None for tables too small for it.

    The classifier is scikit-learn's DecisionTreeClassifier on the winners, with the same features, as many
    leaves as ours has in that fold and the same depth limit, averaged over seeds as it breaks ties at random.
    """
    if len(problem.cost) < 2 * FOLDS:
        return None
    learnt = cross_validate(problem) if learnt is None else learnt
    theirs = []
    for one in learnt:
        known, unseen = problem.rows(one.fold.train), problem.rows(one.fold.test)
        budget = Budget(problem.kernel.budget.max_depth, size(one.tree))
        rules = [classifier(known, budget, seed) for seed in _CLASSIFIER_SEEDS]
        theirs += [judge(rule.choose(unseen), unseen).cost for rule in rules]
    ours, cells = held_out(problem, learnt).ravel(), problem.table.cells
    return Evaluation(_summary(ours, cells), _summary(np.concatenate(theirs), cells))


def _summary(lost: npt.NDArray[np.int64], cells: Cells) -> HeldOut:
    agreement = float(np.mean(lost == 0))
    if cells is Cells.WINNERS:
        return HeldOut(agreement, None)
    timed = lost[lost < UNMEASURED]
    slowdown = math.exp(float(timed.mean()) / UNIT) if len(timed) else math.inf
    return HeldOut(agreement, slowdown, 1 - len(timed) / len(lost))
