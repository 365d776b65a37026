"""From a problem to a tree within a budget: the stages of the search, in the order in which they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from treegen.core.problem import UNIT, Problem
from treegen.core.spec import Budget, Config
from treegen.core.tree import Leaf, Split, Tree
from treegen.fit.costs import FAILED, CostDrop, is_significant, losses
from treegen.fit.interpolation import interpolate
from treegen.fit.local_search import grow, isolate_failures, local_search, prune_configs
from treegen.fit.training_set import CandidateSplit, IndexTree, TrainingSet, candidate_splits, low_sides

Ints = npt.NDArray[np.int64]

_MOST_ROWS = 8192  # scenarios that the search reads, evenly spaced in a table that is sorted by features
_REPAIRS = 3  # further searches, which also read scenarios in which the tree before would fail
_Z_REFINED = 3.0  # standard deviations that the search without interpolated rows must save
_SMALLEST_LEAF = 200  # a leaf holds at least one in so many rows: fewer say little about the next scenario


def search_tree(problem: Problem, budget: Budget) -> Tree:
    """The tree of least loss that was found, prices of leaves and configs included; equal on every machine.

    `Split.gap` holds the measured values around each threshold.
    """
    loss, features = losses(problem), feature_columns(problem)
    splits = candidate_splits(features)
    rows = np.unique(np.linspace(0, len(loss) - 1, _MOST_ROWS).round().astype(np.int64))
    for _ in range(1 + _REPAIRS):
        configs = shortlist(loss[rows], UNIT)
        searched = _search(splits, features[rows], loss[np.ix_(rows, configs)], budget)
        table = _training_set(splits, features, loss[:, configs], budget)
        tree = prune_configs(table, searched, round(budget.config_price * UNIT * len(loss)))
        failing = np.flatnonzero(_fails(table, tree) | _fails(table, searched))
        if not _fails(table, tree).any() or np.isin(failing, rows).all():
            break
        rows = np.union1d(rows, failing[:_MOST_ROWS])
    return _tree(problem, splits, [problem.configs[column] for column in configs], tree)


def _search(splits: Sequence[CandidateSplit], features: Ints, loss: Ints, budget: Budget) -> IndexTree:
    """The best tree that was found for some scenarios. features: [rows, split_on]; loss: [rows, configs]."""
    measured = _training_set(splits, features, loss, budget)
    more_features, more_loss = interpolate(features, loss)
    dense = _training_set(splits, np.vstack([features, more_features]), np.vstack([loss, more_loss]), budget)
    tree = local_search(dense, dense.best_config(dense.all_rows))
    if len(more_loss):
        tree = _refined(measured, tree)
    if _fails(measured, tree).any():  # a few scenarios may need a leaf for themselves, however small
        tree = local_search(replace(dense, min_rows=1), tree)
        tree = isolate_failures(measured, tree)
    return tree


def _refined(measured: TrainingSet, tree: IndexTree) -> IndexTree:
    """A search on measured scenarios alone, if its tree saves more there than chance explains."""
    refined = local_search(measured, tree)
    saved = measured.row_losses(tree, measured.all_rows) - measured.row_losses(refined, measured.all_rows)
    drop = CostDrop(saved.astype(np.int64), saved.astype(np.int64), measured.all_rows)
    return refined if is_significant(drop, _Z_REFINED) else tree


def greedy(problem: Problem, budget: Budget) -> Tree:
    """The baseline: best-first growth over the same splits and configs, with nothing after it."""
    loss, features = losses(problem), feature_columns(problem)
    columns, splits = shortlist(loss, UNIT), candidate_splits(features)
    table = _training_set(splits, features, loss[:, columns], budget)
    tree = grow(replace(table, min_rows=1, leaf_price=0), table.best_config(table.all_rows))
    return _tree(problem, splits, [problem.configs[column] for column in columns], tree)


def feature_columns(problem: Problem) -> Ints:
    """[scenarios, split_on] the features that trees may split on."""
    return np.stack([problem.column(name) for name in problem.split_on], axis=1)


def _training_set(
    splits: Sequence[CandidateSplit], features: Ints, loss: Ints, budget: Budget
) -> TrainingSet:
    return TrainingSet(
        is_low=low_sides(splits, features).astype(np.float64),
        loss=loss.astype(np.float64),
        min_rows=max(1, len(loss) // _SMALLEST_LEAF),
        max_depth=budget.max_depth,
        max_leaves=budget.max_leaves,
        leaf_price=round(budget.leaf_price * UNIT * len(loss)),
    )


def _fails(training: TrainingSet, tree: IndexTree) -> npt.NDArray[np.bool_]:
    """[rows] whether the tree launches a config that failed or breaks a constraint there."""
    return training.row_losses(tree, training.all_rows) >= FAILED


def _tree(
    problem: Problem, splits: Sequence[CandidateSplit], configs: Sequence[Config], tree: IndexTree
) -> Tree:
    """The tree with features, thresholds and configs in place of their numbers."""
    if not isinstance(tree, tuple):
        return Leaf(configs[tree])
    split = splits[tree[0]]
    low, high = (_tree(problem, splits, configs, side) for side in tree[1:])
    return Split(problem.split_on[split.feature], split.threshold, low, high, (split.below, split.above))


MOST = 24
_SMALLEST_GAIN = 1.0005  # no further config is taken that saves less than this factor of the time


def shortlist(loss: npt.NDArray[np.int64], unit: int) -> npt.NDArray[np.int64]:
    """Columns of loss [rows, configs], each the one that saves most beside those before it.

    The greedy choice saves at least 1 - 1/e of what the best set of as many columns saves (Nemhauser, Wolsey,
    Fisher, Mathematical Programming 14, 1978). Of equal savings the column of least total loss wins, then the
    first. unit: the steps of one natural log.
    """
    rank = np.lexsort([np.arange(loss.shape[1]), loss.sum(axis=0)])
    chosen = [int(rank[0])]
    now = loss[:, chosen[0]].copy()
    least = round(np.log(_SMALLEST_GAIN) * unit * len(loss))
    while len(chosen) < min(MOST, loss.shape[1]):
        left = np.array([np.minimum(now, loss[:, column]).sum() for column in rank])
        best = int(left.argmin())
        if int(now.sum()) - int(left[best]) <= least:
            break
        chosen.append(int(rank[best]))
        now = np.minimum(now, loss[:, chosen[-1]])
    return np.array(chosen)
