"""Other methods, for comparison. Each learns from the same scenarios and the same features.

scikit-learn takes over a second to import, so whoever only reviews a module does without it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from treegen.core.expr import names
from treegen.core.heuristic import Heuristic
from treegen.core.launches import columns_in
from treegen.core.problem import UNIT, Problem, with_untimed_penalty
from treegen.core.spec import Config
from treegen.crossval.score import Ints, Score, cells_of

OURS, SINGLE, FOREST = "ours", "single_best", "forest"
_SEED = 0
_CAP = 4 * UNIT  # else a single failure would outweigh all times in a mean of costs


@dataclass(frozen=True)
class Rule:
    """A rule that a method has learned."""

    configs: tuple[Config, ...]
    choose: Callable[[Problem], Ints]  # [scenarios] places in `configs`
    leaves: int | None  # of its tree; None if it is not a single tree

    def columns(self, unseen: Problem) -> Ints:
        """[scenarios] columns of the problem's configs, or ABSENT."""
        return columns_in(unseen, self.configs, self.choose(unseen))


def learn(known: Problem, heuristic: Heuristic) -> dict[str, Rule]:
    """Our rule, then the peers' rules, with at most as many leaves as ours has cells."""
    ours = Score.of(known, heuristic).launches.configs
    rule = Rule(ours, lambda unseen: Score.of(unseen, heuristic).launches.config, cells_of(heuristic))
    return {OURS: rule, **{name: method(known, rule.leaves or 1) for name, method in PEERS.items()}}


def asked(problem: Problem) -> tuple[str, ...]:
    """The features about which trees, regimes and classes ask, of those that the table holds."""
    kernel = problem.kernel
    named = {name for when in kernel.conditions for name in names(when)} | set(kernel.split_on)
    return tuple(name for name in problem.names if name in named) or problem.names


def features_of(problem: Problem, known: Problem) -> Ints:
    """[scenarios, asked] the features of a problem about which trees of `known` may ask."""
    return np.stack([problem.column(name) for name in asked(known)], axis=1)


def single_best(known: Problem, leaves: int) -> Rule:
    """The one config of least total cost."""
    best = with_untimed_penalty(known.cost).sum(axis=0).argmin()
    return Rule(known.configs, lambda unseen: np.full(len(unseen.cost), best), 1)


def classifier(known: Problem, leaves: int, seed: int = _SEED) -> Rule:
    """scikit-learn's DecisionTreeClassifier on the winners, as in PyTorch's AutoHeuristic."""
    if leaves < 2:
        return single_best(known, leaves)
    from sklearn.tree import DecisionTreeClassifier

    model = DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns if most scenarios have winners of their own
        model.fit(features_of(known, known), known.cost.argmin(axis=1))
    leaves = int(model.get_n_leaves())
    return Rule(known.configs, lambda unseen: model.predict(features_of(unseen, known)), leaves)


def forest(known: Problem, leaves: int) -> Rule:
    """Extremely randomised trees (Geurts et al. 2006) on costs, of any size: what the features allow."""
    cheapest = least_cost(forest_model(), known)
    return Rule(known.configs, lambda unseen: cheapest(features_of(unseen, known)), None)


def forest_model() -> Any:
    from sklearn.ensemble import ExtraTreesRegressor

    return ExtraTreesRegressor(n_estimators=200, random_state=_SEED)


def least_cost(model: Any, known: Problem) -> Callable[[Ints], Ints]:
    """From [scenarios, asked] features, the places of the configs of least cost by a regressor.

    It is fitted here, and sees logarithms of the features: a forest's random thresholds are uniform between
    two values, and neighbours are near in ratios.
    """
    targets = np.minimum(with_untimed_penalty(known.cost), _CAP)
    # scikit-learn warns of a single column, and predicts one without a second axis.
    model.fit(_logarithms(features_of(known, known)), targets[:, 0] if targets.shape[1] == 1 else targets)

    def cheapest(features: Ints) -> Ints:
        """The least predicted cost, rounded so that summation order never breaks a tie."""
        predicted = model.predict(_logarithms(features)).reshape(len(features), -1)
        return np.asarray(np.rint(predicted).argmin(axis=1))

    return cheapest


def _logarithms(features: Ints) -> npt.NDArray[np.float64]:
    values = features.astype(np.float64)
    return np.asarray(np.sign(values) * np.log2(1 + np.abs(values)))


PEERS: Mapping[str, Callable[[Problem, int], Rule]]
"""The ways of choosing beside ours, by what they learn from a problem with at most so many leaves."""
PEERS = {SINGLE: single_best, "classifier": classifier, FOREST: forest}
