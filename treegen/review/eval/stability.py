"""How much a tree's decisions depend on which scenarios were measured, and when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.problem import Problem
from treegen.core.table import Cells
from treegen.core.tree import Tree
from treegen.crossval.choices import Decisions, Fit, decide, judge, penalise_untimed
from treegen.crossval.folds import resampled
from treegen.crossval.heldout import geomean
from treegen.crossval.parallel import ParallelMap
from treegen.update.rebuild import rebuild

SAMPLES = 10
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Difference:
    """Two ways of deciding in the same scenarios.

    changed: the share of scenarios in which they launch different configs. slower: geometric mean of the
    second's time over the first's; apart: geometric mean of the slower's time over the faster's. Both charge
    what has no time as twice the best, and are None where no times are known.
    """

    scenarios: int
    changed: float
    slower: float | None
    apart: float | None


@dataclass(frozen=True)
class Refit:
    """The tree of another table against ours, in the scenarios that both hold. here, there: judged by our
    table and by the other; the second of the Difference is the one that was not fitted to that table."""

    here: Difference
    there: Difference


@dataclass(frozen=True)
class Bootstrap:
    """Our tree against those of each sample. build: as a build over our tree takes them; fresh: as fitted."""

    build: tuple[Difference, ...]
    fresh: tuple[Difference, ...]


@dataclass(frozen=True)
class Refits:
    """Our tree against those of another table. build, fresh: as in Bootstrap."""

    build: Refit
    fresh: Refit


@dataclass(frozen=True)
class Task:
    """A problem to build again over an `old` tree, for another process."""

    problem: Problem
    old: Tree
    fit: Fit
    other_scenarios: bool = False


@dataclass(frozen=True)
class Again:
    """The trees of a task. build: of the old one what is as good; fresh: as fitted."""

    build: Tree
    fresh: Tree


def build_again(task: Task) -> Again:
    """What `treegen build` would do if the old tree were the previous one."""
    found = rebuild(task.problem, task.old, task.fit, other_scenarios=task.other_scenarios)
    return Again(found.tree, found.fresh)


def bootstrap(
    problem: Problem, tree: Tree, fit: Fit, run: ParallelMap, what: str, samples: int = SAMPLES
) -> Bootstrap:
    """`tree` against those of bootstrap samples of the scenarios, in all scenarios of the table.

    Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 6.
    """
    tasks = [Task(problem.rows(rows), tree, fit) for rows in resampled(len(problem.cost), samples)]
    ours = decide(tree, problem)
    found = [
        [difference(ours, decide(one, problem), problem) for one in (again.build, again.fresh)]
        for again in run(what, build_again, tasks)
    ]
    build, fresh = zip(*found, strict=True)
    return Bootstrap(build, fresh)


def against(
    problem: Problem, tree: Tree, others: Sequence[Problem], fit: Fit, run: ParallelMap, what: str
) -> list[Refits | None]:
    """For each of the others, `tree` against those of that table; None where it holds no common scenario."""
    tasks = [
        Task(other, tree, fit, len(common_rows(problem, other)[1]) < len(other.cost)) for other in others
    ]
    found = []
    for other, again in zip(others, run(what, build_again, tasks), strict=True):
        build, fresh = (refit(problem, tree, other, one) for one in (again.build, again.fresh))
        found.append(Refits(build, fresh) if build and fresh else None)
    return found


def refit(problem: Problem, tree: Tree, other: Problem, again: Tree) -> Refit | None:
    """`tree` was fitted to `problem`, `again` to `other`; None where the two hold no common scenario.

    Common are scenarios of the same id and the same features.
    """
    here, there = common_rows(problem, other)
    if not len(here):
        return None
    ours, theirs = problem.rows(here), other.rows(there)
    first, second = decide(tree, ours), decide(again, ours)
    return Refit(difference(first, second, ours), difference(second, first, theirs))


def difference(first: Decisions, second: Decisions, problem: Problem) -> Difference:
    """What it costs to decide as the second does instead of the first, by the problem's table."""
    changed = sum(a != b for a, b in zip(first, second, strict=True)) / len(first)
    if problem.table.cells is Cells.WINNERS:
        return Difference(len(first), changed, None, None)
    before, after = (penalise_untimed(judge(decisions, problem).cost) for decisions in (first, second))
    more = after - before
    return Difference(len(first), changed, geomean(more), geomean(np.abs(more)))


def common_rows(problem: Problem, other: Problem) -> tuple[Rows, Rows]:
    """The rows of both, beside each other, of the scenarios that both hold: of the same id and features."""
    shared = [name for name in problem.names if name in other.names]
    if not shared:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    places = {scenario: row for row, scenario in enumerate(other.scenarios)}
    pairs = [(row, places[s]) for row, s in enumerate(problem.scenarios) if s in places]
    here, there = (np.array([pair[side] for pair in pairs], dtype=np.int64) for side in (0, 1))
    same = np.ones(len(pairs), dtype=bool)
    for name in shared:
        same &= problem.column(name)[here] == other.column(name)[there]
    return here[same], there[same]
