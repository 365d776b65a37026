"""Other methods, for comparison. Each learns from the same scenarios and the same features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from treegen.core.problem import UNIT, Problem, with_untimed_penalty
from treegen.core.spec import Budget
from treegen.core.tree import Tree, size
from treegen.crossval.choices import Decisions, decisions_of
from treegen.fit.search import greedy as greedy_tree

FOREST_TREES = 200
_SEED = 0
_CAP = 4 * UNIT  # else a single failure would outweigh all times in a mean of costs


@dataclass(frozen=True)
class Rule:
    """A rule that a method has fitted."""

    choose: Callable[[Problem], Decisions]
    leaves: int | None  # of its tree; None if it is not a single tree


Method = Callable[[Problem, Budget], Rule]
"""Learns a rule from a problem, within the depth and the leaves of a budget."""


def tree_rule(tree: Tree) -> Rule:
    return Rule(lambda unseen: decisions_of(tree, unseen), size(tree))


def single_best(known: Problem, budget: Budget) -> Rule:
    """The one config of least total cost."""
    config = known.configs[int(with_untimed_penalty(known.cost).sum(axis=0).argmin())]
    return Rule(lambda unseen: (config,) * len(unseen.cost), 1)


def greedy(known: Problem, budget: Budget) -> Rule:
    """Best-first growth for the same objective, over the same splits."""
    return tree_rule(greedy_tree(known, budget))


def classifier(known: Problem, budget: Budget, seed: int = _SEED) -> Rule:
    """scikit-learn's DecisionTreeClassifier on the winners, as in PyTorch's AutoHeuristic."""
    winners = known.cost.argmin(axis=1)
    if budget.max_leaves < 2:
        config = known.configs[int(np.bincount(winners).argmax())]
        return Rule(lambda unseen: (config,) * len(unseen.cost), 1)
    model = DecisionTreeClassifier(
        max_leaf_nodes=budget.max_leaves, max_depth=budget.max_depth, random_state=seed
    )
    model.fit(_features(known, known), winners)
    return Rule(
        lambda unseen: _named(known, model.predict(_features(unseen, known))), int(model.get_n_leaves())
    )


def regressor(known: Problem, budget: Budget) -> Rule:
    """scikit-learn's DecisionTreeRegressor on the costs of all configs; the cheapest config is chosen."""
    if budget.max_leaves < 2:
        return single_best(known, budget)
    model = DecisionTreeRegressor(
        max_leaf_nodes=budget.max_leaves, max_depth=budget.max_depth, random_state=_SEED
    )
    model.fit(_features(known, known), _targets(known))
    return Rule(lambda unseen: _cheapest(known, model, _features(unseen, known)), int(model.get_n_leaves()))


def forest(known: Problem, budget: Budget) -> Rule:
    """Extremely randomised trees (Geurts et al. 2006) on costs, without a budget: what the features allow.

    They see logarithms of the features, as their random thresholds are uniform between two values.
    """
    model = ExtraTreesRegressor(n_estimators=FOREST_TREES, random_state=_SEED)
    model.fit(_logarithms(_features(known, known)), _targets(known))
    return Rule(lambda unseen: _cheapest(known, model, _logarithms(_features(unseen, known))), None)


def _features(problem: Problem, known: Problem) -> npt.NDArray[np.int64]:
    """[scenarios, split_on] of a problem, in the column order of `known`."""
    return np.stack([problem.column(name) for name in known.split_on], axis=1)


def _logarithms(features: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    values = features.astype(np.float64)
    return np.asarray(np.sign(values) * np.log2(1 + np.abs(values)))


def _targets(known: Problem) -> npt.NDArray[np.int64]:
    targets = np.minimum(with_untimed_penalty(known.cost), _CAP)
    return targets[:, 0] if targets.shape[1] == 1 else targets  # scikit-learn warns of a single column


def _cheapest(known: Problem, model: Any, features: npt.NDArray[Any]) -> Decisions:
    """The configs of least predicted cost, rounded so that summation order never breaks a tie."""
    predicted = model.predict(features).reshape(len(features), -1)  # for one config there is no second axis
    return _named(known, np.rint(predicted).argmin(axis=1))


def _named(known: Problem, chosen: npt.NDArray[np.int64]) -> Decisions:
    return tuple(known.configs[int(column)] for column in chosen)
