"""From a problem to a tree within a budget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT, Problem
from treegen.core.spec import Budget
from treegen.core.tree import Leaf, Split, Tree
from treegen.fit.config_pruning import prune_configs
from treegen.fit.growth import grow
from treegen.fit.index_tree import IndexTree
from treegen.fit.interpolate import between
from treegen.fit.local_search import improve
from treegen.fit.objective import FAILED, losses
from treegen.fit.shortlist import shortlist
from treegen.fit.thresholds import Question, answers, questions
from treegen.fit.training_set import TrainingSet

_MOST_ROWS = 8192  # what the search reads at most, evenly out of a table that is sorted by features
_REPAIRS = 3  # searches that also read rows in which what came before would fail
_LEAST = 200  # a leaf holds one row of so many at least: fewer tell little of the next one


def search_tree(problem: Problem, budget: Budget) -> Tree:
    """The tree that loses least, the prices of leaves and configs included; the same on every machine.

    Thresholds are readable; `Split.gap` keeps the measured values around each.
    """
    loss, features = losses(problem), asked_features(problem)
    searched = np.unique(np.linspace(0, len(loss) - 1, _MOST_ROWS).round().astype(np.int64))
    tree, failing = _fit(problem, budget, loss, features, searched)
    for _ in range(_REPAIRS):
        if np.isin(failing, searched).all():
            break
        searched = np.union1d(searched, failing[:_MOST_ROWS])
        tree, failing = _fit(problem, budget, loss, features, searched)
    return tree


def _fit(
    problem: Problem,
    budget: Budget,
    loss: npt.NDArray[np.int64],
    features: npt.NDArray[np.int64],
    searched: npt.NDArray[np.int64],
) -> tuple[Tree, npt.NDArray[np.int64]]:
    """The tree by a search on some of the rows; if it fails in any, those where it did, too."""
    columns = shortlist(loss[searched], UNIT)
    asked = questions(features)
    rows, measured = features[searched], loss[np.ix_(searched, columns)]
    more, mixed = between(rows, measured)
    sample = _sample(asked, rows, measured, budget)
    dense = _sample(asked, np.vstack([rows, more]), np.vstack([measured, mixed]), budget)
    shape = improve(dense, dense.best_config(dense.every))
    if _fails(sample, shape):  # a few scenarios that nothing else can serve may need a leaf of their own
        sample, dense = replace(sample, least=1), replace(dense, least=1)
        shape = improve(dense, shape)
    every = replace(
        sample, answers=answers(asked, features).astype(np.float64), loss=loss[:, columns].astype(np.float64)
    )
    final = prune_configs(every, shape, round(budget.config_price * UNIT * len(loss)))
    failing = [every.spent(tree, every.every) >= FAILED for tree in (final, shape)]
    tree = _tree(problem, asked, columns, final)
    return tree, np.flatnonzero(failing[0] | failing[1]) if failing[0].any() else searched[:0]


def greedy(problem: Problem, budget: Budget) -> Tree:
    """The baseline: best-first growth over the same questions and configs, and nothing after it."""
    loss, features = losses(problem), asked_features(problem)
    columns, asked = shortlist(loss, UNIT), questions(features)
    yes, floats = answers(asked, features).astype(np.float64), loss[:, columns].astype(np.float64)
    sample = TrainingSet(yes, floats, 1, budget.max_depth, budget.max_leaves, 0)
    return _tree(problem, asked, columns, grow(sample, sample.best_config(sample.every)))


def asked_features(problem: Problem) -> npt.NDArray[np.int64]:
    """[scenarios, split_on] what trees may ask about."""
    return np.stack([problem.column(name) for name in problem.split_on], axis=1)


def _sample(
    asked: tuple[Question, ...], features: npt.NDArray[np.int64], loss: npt.NDArray[np.int64], budget: Budget
) -> TrainingSet:
    return TrainingSet(
        answers(asked, features).astype(np.float64),
        loss.astype(np.float64),
        max(1, len(loss) // _LEAST),
        budget.max_depth,
        budget.max_leaves,
        round(budget.leaf_price * UNIT * len(loss)),
    )


def _fails(sample: TrainingSet, shape: IndexTree) -> bool:
    return bool((sample.spent(shape, sample.every) >= FAILED).any())


def _tree(
    problem: Problem, asked: tuple[Question, ...], columns: npt.NDArray[np.int64], shape: IndexTree
) -> Tree:
    if not isinstance(shape, tuple):
        return Leaf(problem.configs[columns[shape]])
    question = asked[shape[0]]
    low, high = (_tree(problem, asked, columns, side) for side in shape[1:])
    gap = (question.below, question.above)
    return Split(problem.split_on[question.feature], question.threshold, low, high, gap)
