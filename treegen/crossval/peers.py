"""Other methods, for comparison. Each learns from the same scenarios and the same features.

scikit-learn takes over a second to import, so whoever only reviews a module does without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from treegen.core.heuristic import Heuristic
from treegen.core.problem import UNIT, Problem, with_untimed_penalty
from treegen.crossval.choices import Decisions, Method, Rule, cells_of, features_of, rule_of

OURS, SINGLE, FOREST = "ours", "single_best", "forest"
_SEED = 0
_CAP = 4 * UNIT  # else a single failure would outweigh all times in a mean of costs


def learn(known: Problem, heuristic: Heuristic) -> dict[str, Rule]:
    """Our rule, then the peers' rules, with at most as many leaves as ours has cells."""
    leaves = cells_of(heuristic)
    return {OURS: rule_of(heuristic), **{name: method(known, leaves) for name, method in PEERS.items()}}


def single_best(known: Problem, leaves: int) -> Rule:
    """The one config of least total cost."""
    config = known.configs[int(with_untimed_penalty(known.cost).sum(axis=0).argmin())]
    return Rule(lambda unseen: (config,) * len(unseen.cost), 1)


def classifier(known: Problem, leaves: int, seed: int = _SEED) -> Rule:
    """scikit-learn's DecisionTreeClassifier on the winners, as in PyTorch's AutoHeuristic."""
    if leaves < 2:
        return single_best(known, leaves)
    from sklearn.tree import DecisionTreeClassifier

    model = DecisionTreeClassifier(max_leaf_nodes=leaves, random_state=seed)
    model.fit(features_of(known, known), known.cost.argmin(axis=1))
    return Rule(
        lambda unseen: _named(known, model.predict(features_of(unseen, known))), int(model.get_n_leaves())
    )


def forest(known: Problem, leaves: int) -> Rule:
    """Extremely randomised trees (Geurts et al. 2006) on costs, of any size: what the features allow.

    They see logarithms of the features, as their random thresholds are uniform between two values.
    """
    from sklearn.ensemble import ExtraTreesRegressor

    model = ExtraTreesRegressor(n_estimators=200, random_state=_SEED)
    model.fit(_logarithms(features_of(known, known)), _targets(known))
    return Rule(lambda unseen: _cheapest(known, model, _logarithms(features_of(unseen, known))), None)


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


# The ways of choosing beside ours, in order of presentation.
PEERS: Mapping[str, Method] = {SINGLE: single_best, "classifier": classifier, FOREST: forest}
