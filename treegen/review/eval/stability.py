"""The stability of a tree's choices under other scenarios and other measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from treegen.core.problem import Problem
from treegen.core.table import Cells
from treegen.core.tree import Tree
from treegen.crossval.choices import Decisions, Fit, decisions_of, penalise_untimed, score_decisions
from treegen.crossval.evaluate import cross_validate, held_out
from treegen.crossval.folds import resampled
from treegen.crossval.heldout import geomean
from treegen.crossval.parallel import ParallelMap
from treegen.review.common_rows import common_rows
from treegen.update.keep import keep

SAMPLES = 10


@dataclass(frozen=True)
class ChoiceDifference:
    """Two trees' choices in the same scenarios; an untimed choice scores as 2x slower than the best.

    Both ratios are geometric means of times, None for a table of winners.
    """

    scenarios: int
    changed: float  # share of scenarios in which the two launch different configs
    slower: float | None  # second tree over first
    apart: float | None  # slower choice over faster


@dataclass(frozen=True)
class RefitDifference:
    """The tree of another table against ours, in the scenarios that both tables hold.

    The second tree of each difference is the one that was not fitted to the scoring table.
    """

    here: ChoiceDifference  # scored by our table
    there: ChoiceDifference  # scored by the other


@dataclass(frozen=True)
class BootstrapDifferences:
    """Our tree against those of each sample."""

    build: tuple[ChoiceDifference, ...]  # as a build over our tree makes them
    fresh: tuple[ChoiceDifference, ...]  # as fitted


@dataclass(frozen=True)
class RefitDifferences:
    """Our tree against those of another table; as in BootstrapDifferences."""

    build: RefitDifference
    fresh: RefitDifference


@dataclass(frozen=True)
class RebuildTask:
    """A problem to build again over a previous tree, for another process."""

    problem: Problem
    previous: Tree
    fit: Fit
    other_scenarios: bool = False


def build_again(task: RebuildTask) -> tuple[Tree, Tree]:
    """The tree that `treegen build` makes over the previous tree, and the fresh tree."""
    rebuilt = keep(
        task.problem,
        task.previous,
        task.fit(task.problem),
        lambda: held_out(task.problem, cross_validate(task.problem, task.fit)),
        other_scenarios=task.other_scenarios,
    )
    return rebuilt.tree, rebuilt.fresh


def bootstrap(
    problem: Problem, tree: Tree, fit: Fit, run: ParallelMap, what: str, samples: int = SAMPLES
) -> BootstrapDifferences:
    """Compare `tree` with the trees of bootstrap samples of the scenarios, in all scenarios of the table.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 6.
    """
    tasks = [RebuildTask(problem.rows(rows), tree, fit) for rows in resampled(len(problem.cost), samples)]
    ours = decisions_of(tree, problem)
    differences = [
        [difference(ours, decisions_of(other, problem), problem) for other in trees]
        for trees in run(what, build_again, tasks)
    ]
    build, fresh = zip(*differences, strict=True)
    return BootstrapDifferences(build, fresh)


def refits(
    problem: Problem, tree: Tree, others: Sequence[Problem], fit: Fit, run: ParallelMap, what: str
) -> list[RefitDifferences | None]:
    """Compare `tree` with the trees of each other table; None where that has no scenario in common."""
    tasks = []
    for other in others:
        has_more = len(common_rows(problem, other)[1]) < len(other.cost)
        tasks.append(RebuildTask(other, tree, fit, has_more))
    differences = []
    for other, trees in zip(others, run(what, build_again, tasks), strict=True):
        build, fresh = (refit(problem, tree, other, one) for one in trees)
        differences.append(RefitDifferences(build, fresh) if build and fresh else None)
    return differences


def refit(problem: Problem, tree: Tree, other: Problem, again: Tree) -> RefitDifference | None:
    """Compare `tree`, fitted to `problem`, with `again`, fitted to `other`, in their common scenarios.

    None where there are none.
    """
    here, there = common_rows(problem, other)
    if not len(here):
        return None
    ours, theirs = problem.rows(here), other.rows(there)
    first, second = decisions_of(tree, ours), decisions_of(again, ours)
    return RefitDifference(difference(first, second, ours), difference(second, first, theirs))


def difference(first: Decisions, second: Decisions, problem: Problem) -> ChoiceDifference:
    """Compare two trees' choices by the problem's table."""
    changed = sum(a != b for a, b in zip(first, second, strict=True)) / len(first)
    if problem.table.cells is Cells.WINNERS:
        return ChoiceDifference(len(first), changed, None, None)
    before, after = (
        penalise_untimed(score_decisions(decisions, problem).cost) for decisions in (first, second)
    )
    more = after - before
    return ChoiceDifference(len(first), changed, geomean(more), geomean(np.abs(more)))
