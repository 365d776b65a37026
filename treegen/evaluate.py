"""How good a tree is on scenarios that it has not seen, beside scikit-learn's classifier of the same size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import RepeatedKFold
from sklearn.tree import DecisionTreeClassifier

from treegen.fit.apply import costs
from treegen.fit.size import fit
from treegen.problem import UNIT, UNMEASURED, Problem
from treegen.table import Cells
from treegen.tree import size

FOLDS, REPEATS, SEED = 5, 2, 0
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


def evaluate(problem: Problem) -> Evaluation | None:
    """5-fold cross-validation of the whole fit, over two shuffles; None for tables too small for it.

    The classifier is scikit-learn's DecisionTreeClassifier on the winners, with the same features, as many
    leaves as ours has in that fold and the same depth limit, averaged over seeds as it breaks ties at random.
    """
    scenarios = len(problem.cost)
    if scenarios < 2 * FOLDS:
        return None
    ours, theirs = [], []
    folds = RepeatedKFold(n_splits=FOLDS, n_repeats=REPEATS, random_state=SEED)
    for train, test in folds.split(problem.cost):
        known, unseen = problem.rows(train), problem.rows(test)
        tree = fit(known, problem.kernel.budget)
        ours.append(costs(tree, unseen))
        theirs += [_classifier_costs(known, unseen, size(tree), seed) for seed in _CLASSIFIER_SEEDS]
    cells = problem.table.cells
    return Evaluation(_summary(np.concatenate(ours), cells), _summary(np.concatenate(theirs), cells))


def _classifier_costs(known: Problem, unseen: Problem, leaves: int, seed: int) -> npt.NDArray[np.int64]:
    winners = known.cost.argmin(axis=1)
    features = [known.names.index(name) for name in known.split_on]
    if leaves < 2:
        chosen = np.full(len(unseen.cost), np.bincount(winners).argmax())
    else:
        depth = known.kernel.budget.max_depth
        model = DecisionTreeClassifier(max_leaf_nodes=leaves, max_depth=depth, random_state=seed)
        chosen = model.fit(known.features[:, features], winners).predict(unseen.features[:, features])
    return np.asarray(unseen.cost[np.arange(len(chosen)), chosen])


def _summary(lost: npt.NDArray[np.int64], cells: Cells) -> HeldOut:
    agreement = float(np.mean(lost == 0))
    if cells is Cells.WINNERS:
        return HeldOut(agreement, None)
    timed = lost[lost < UNMEASURED]
    slowdown = math.exp(float(timed.mean()) / UNIT) if len(timed) else math.inf
    return HeldOut(agreement, slowdown, 1 - len(timed) / len(lost))
