"""Cross-validation: how good fits are on scenarios and on models that they have not seen.

Every held-out figure has five folds of scenarios, or up to six of whole groups such as models: scenarios of
one model resemble each other, so that folds of scenarios flatter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from treegen.core.heuristic import Heuristic
from treegen.core.problem import UNIT, Problem
from treegen.crossval.peers import classifier
from treegen.crossval.score import Ints, Quality, Score, cells_of, costs_of, penalised, quality
from treegen.fit.costs import copies, groups_of

FOLDS = 5
GROUP_FOLDS = 6
_SEED = 0
_CLASSIFIER_SEEDS = range(4)


@dataclass(frozen=True)
class Fold:
    """Ascending rows of a problem, each array [scenarios] int64."""

    train: Ints
    test: Ints


@dataclass(frozen=True)
class FoldFit:
    """What was fitted to a fold's training scenarios."""

    fold: Fold
    heuristic: Heuristic


@dataclass(frozen=True)
class HeldOut:
    """The figures of fits on what they have not seen."""

    quality: Quality
    error: float  # one standard error of the mean slowdown, or of the share that is won


@dataclass(frozen=True)
class Evaluation:
    """Held-out figures."""

    folds: HeldOut
    groups: HeldOut | None  # of whole groups; None where all scenarios are of one group
    classifier: Quality  # on the folds of scenarios


def split_copies(copies: Ints, folds: int) -> tuple[Fold, ...]:
    """K-fold cross-validation, which holds out each scenario once.

    Copies of a scenario stay together, so that no held-out scenario was seen in training.

    copies: [scenarios], equal for copies; all numbers from 0 to the greatest.
    """
    from sklearn.model_selection import KFold

    splitter = KFold(n_splits=folds, shuffle=True, random_state=_SEED)
    sides = splitter.split(np.empty(int(copies.max()) + 1))
    return tuple(Fold(*(np.flatnonzero(np.isin(copies, side)) for side in pair)) for pair in sides)


def folds_of(problem: Problem, folds: int = FOLDS) -> tuple[Fold, ...]:
    """Folds of scenarios; none for a table whose scenarios all have the same features.

    Of fewer scenarios than folds each is held out alone.
    """
    return _folds(copies(problem.features), folds)


def group_folds(problem: Problem, by: Sequence[str] | None = None) -> tuple[Fold, ...]:
    """Up to six folds of whole groups; none where all scenarios are of one group."""
    return _folds(groups_of(problem, by), GROUP_FOLDS)


def _folds(number: Ints, most: int) -> tuple[Fold, ...]:
    count = int(number.max()) + 1
    return () if count == 1 else split_copies(number, min(most, count))


def cross_validate(
    problem: Problem, fit: Callable[[Problem], Heuristic], folds: Sequence[Fold]
) -> tuple[FoldFit, ...]:
    """What is fitted without each fold."""
    return tuple(FoldFit(fold, fit(problem.rows(fold.train))) for fold in folds)


def held_out_costs(problem: Problem, fits: Sequence[FoldFit]) -> Ints:
    """[scenarios] the cost of the choice of the fit that has not seen the scenario."""
    cost = np.empty(len(problem.cost), dtype=np.int64)
    for found in fits:
        cost[found.fold.test] = Score.of(problem.rows(found.fold.test), found.heuristic).cost
    return cost


def held_out(problem: Problem, fits: Sequence[FoldFit], group: Ints) -> HeldOut | None:
    """The figures of fits on their folds; None for fewer than ten scenarios, or no fold."""
    if not fits or len(problem.cost) < 2 * FOLDS:
        return None
    return with_error(held_out_costs(problem, fits), problem, group)


def with_error(cost: Ints, problem: Problem, group: Ints) -> HeldOut:
    """The figures of a choice in each of a problem's scenarios.

    cost: [scenarios]. group: [scenarios] equal for those that are not independent: copies, or of one model.
    """
    found = quality(cost, problem.scenarios, problem.table.cells)
    if found.slowdown is None:
        return HeldOut(found, standard_error((cost > 0) * UNIT, group))
    return HeldOut(found, standard_error(penalised(cost), group) * found.slowdown)


def standard_error(cost: Ints, group: Ints) -> float:
    """The standard error of the mean cost, over UNIT: that of a ratio, as groups differ in size."""
    _, place = np.unique(group, return_inverse=True)
    sums = np.bincount(place.ravel(), (cost - cost.mean()) / UNIT)
    count = len(sums)
    return math.sqrt(math.fsum((sums**2).tolist()) * count / max(1, count - 1)) / len(cost)


def evaluate(problem: Problem, fits: Sequence[FoldFit], group_fits: Sequence[FoldFit]) -> Evaluation | None:
    """Held-out figures of our fits and of a classifier; None where ours has none.

    The classifier is scikit-learn's DecisionTreeClassifier, trained on the winners. It may ask about the same
    features, and has as many leaves as our fit of that fold has cells. It breaks ties at random, so its
    figures are means over seeds.
    """
    ours = held_out(problem, fits, copies(problem.features))
    if ours is None:
        return None
    theirs: list[Ints] = []
    ids: list[str] = []
    for found in fits:
        known, unseen = problem.rows(found.fold.train), problem.rows(found.fold.test)
        for seed in _CLASSIFIER_SEEDS:
            rule = classifier(known, cells_of(found.heuristic), seed)
            theirs.append(costs_of(rule.columns(unseen), unseen))
            ids += unseen.scenarios
    groups = held_out(problem, group_fits, groups_of(problem))
    return Evaluation(ours, groups, quality(np.concatenate(theirs), tuple(ids), problem.table.cells))
