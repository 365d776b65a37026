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
from treegen.fit.fit import Origin

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


@dataclass(frozen=True)
class DeviceHeuristic:
    """What a build makes of a table: what one device's module is printed from, and its inputs."""

    problem: Problem
    heuristic: Heuristic
    score: Score
    origin: Origin
    evaluation: Evaluation | None  # held-out figures of fresh fits; None for a small table
    why_fresh: str | None = None  # why there were rows that could not be kept


def folds_of(problem: Problem, folds: int = FOLDS) -> tuple[Fold, ...]:
    """Folds of scenarios, of which copies stay together; none if all are copies of one."""
    return split(copies(problem.features), folds)


def group_folds(problem: Problem, by: Sequence[str] | None = None) -> tuple[Fold, ...]:
    """Up to six folds of whole groups; none where all scenarios are of one group."""
    return split(groups_of(problem, by), GROUP_FOLDS)


def split(group: Ints, most: int) -> tuple[Fold, ...]:
    """K-fold cross-validation over whole groups, one a fold where they are few; none for a single group.

    group: [scenarios] all numbers from 0 to the greatest.
    """
    from sklearn.model_selection import KFold

    count = int(group.max()) + 1
    if count == 1:
        return ()
    sides = KFold(min(most, count), shuffle=True, random_state=_SEED).split(np.empty(count))
    return tuple(Fold(*(np.flatnonzero(np.isin(group, side)) for side in pair)) for pair in sides)


def held_out(problem: Problem, folds: Sequence[Fold], costs: Sequence[Ints], group: Ints) -> HeldOut:
    """The figures of choices in folds that hold out each scenario once.

    costs: of each fold's choices in its test scenarios. group: [scenarios] equal for those that are not
    independent: copies, or of one model.
    """
    cost = np.empty(len(problem.cost), dtype=np.int64)
    for fold, of_fold in zip(folds, costs, strict=True):
        cost[fold.test] = of_fold
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


def cross_validate(problem: Problem, fit: Callable[[Problem], Heuristic]) -> Evaluation | None:
    """Held-out figures of a way to fit; None for fewer than ten scenarios, or copies of one."""
    return evaluate(problem, list(map(fit, training_parts(problem))))


def training_parts(problem: Problem) -> list[Problem]:
    """What fits may see in each fold of scenarios, then in each fold of groups."""
    return [problem.rows(fold.train) for fold in (*folds_of(problem), *group_folds(problem))]


def evaluate(problem: Problem, fits: Sequence[Heuristic]) -> Evaluation | None:
    """Held-out figures of our fits to `training_parts` and of a classifier; None as in `cross_validate`.

    The classifier has as many leaves as our fit of that fold has cells. It breaks ties at random, so its
    figures are means over seeds.
    """
    folds, groups = folds_of(problem), group_folds(problem)
    if not folds or len(problem.cost) < 2 * FOLDS:
        return None
    tests = [problem.rows(fold.test) for fold in (*folds, *groups)]
    costs = [Score.of(test, fitted).cost for test, fitted in zip(tests, fits, strict=True)]
    theirs: list[Ints] = []
    ids: list[str] = []
    for fold, unseen, fitted in zip(folds, tests, fits, strict=False):
        for seed in _CLASSIFIER_SEEDS:
            rule = classifier(problem.rows(fold.train), cells_of(fitted), seed)
            theirs.append(costs_of(rule.columns(unseen), unseen))
            ids += unseen.scenarios
    return Evaluation(
        held_out(problem, folds, costs[: len(folds)], copies(problem.features)),
        held_out(problem, groups, costs[len(folds) :], groups_of(problem)) if groups else None,
        quality(np.concatenate(theirs), tuple(ids), problem.table.cells),
    )
