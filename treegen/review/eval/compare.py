"""All ways of choosing, learnt from the same scenarios and judged on the same others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from treegen.core.problem import Problem
from treegen.core.spec import Budget
from treegen.core.table import Cells
from treegen.core.tree import Tree, size
from treegen.crossval import helion
from treegen.crossval.choices import Choices, Fit, joined, judge
from treegen.crossval.folds import Fold
from treegen.crossval.heldout import Quality, gap_closed, quality
from treegen.crossval.parallel import ParallelMap
from treegen.crossval.peers import Method, Rule, classifier, forest, greedy, regressor, single_best, tree_rule

OURS, SINGLE, FOREST = "ours", "single_best", "forest"


@dataclass(frozen=True)
class Row:
    """How good one way of choosing is. leaves, configs: how many its rules have and launch, on average over
    the folds; leaves is None where there is no single tree. gap_closed: None where nothing is to close."""

    way: str
    quality: Quality
    gap_closed: float | None
    leaves: float | None
    configs: float


@dataclass(frozen=True)
class Outcome:
    """What one rule chose. configs: how many it launches in all scenarios of the table."""

    choices: Choices
    leaves: int | None
    configs: int


@dataclass(frozen=True)
class FoldTask:
    """One fold of a problem, for another process; ways: those of `learn` to judge, None for all."""

    problem: Problem
    fold: Fold
    fit: Fit
    ways: tuple[str, ...] | None = None


@cache
def peers() -> Mapping[str, Method]:
    """Ways beside ours by name, in the order of presentation; Helion's only where it is installed."""
    ways: dict[str, Method] = {
        SINGLE: single_best,
        "greedy": greedy,
        "classifier": classifier,
        "regressor": regressor,
    }
    if helion.version():
        ways["helion"] = helion.helion
    return {**ways, FOREST: forest}


def learn(known: Problem, tree: Tree, ways: Sequence[str] | None = None) -> dict[str, Rule]:
    """Our tree's rule, then those that the peers learn with as many leaves and the same limit of depth."""
    budget = Budget(known.kernel.budget.max_depth, size(tree))
    wanted = peers() if ways is None else [name for name in peers() if name in ways]
    return {OURS: tree_rule(tree), **{name: peers()[name](known, budget) for name in wanted}}


def judge_fold(task: FoldTask) -> dict[str, Outcome]:
    """Learn from the fold's training scenarios, choose in those held out."""
    known, unseen = task.problem.rows(task.fold.train), task.problem.rows(task.fold.test)
    rules = learn(known, task.fit(known), task.ways)
    return {name: _outcome(rule, unseen, task.problem) for name, rule in rules.items()}


def held_out(
    problem: Problem, folds: Sequence[Fold], fit: Fit, run: ParallelMap, what: str
) -> tuple[Row, ...]:
    """A row for each way: cross-validation, all ways on the same folds."""
    outcomes = run(what, judge_fold, [FoldTask(problem, fold, fit) for fold in folds])
    return rows(outcomes, problem.table.cells)


def on_others(problem: Problem, tree: Tree, others: Sequence[Problem]) -> list[tuple[Row, ...]]:
    """For each of the others a row for each way: learnt from a whole table (`tree` is ours), judged there."""
    rules = learn(problem, tree) if others else {}
    outcomes = [{name: _outcome(rule, other, other) for name, rule in rules.items()} for other in others]
    return [rows([found], other.table.cells) for found, other in zip(outcomes, others, strict=True)]


def rows(outcomes: Sequence[Mapping[str, Outcome]], cells: Cells) -> tuple[Row, ...]:
    """One row a way from its outcomes in all folds."""
    found = {name: quality(joined([fold[name].choices for fold in outcomes]), cells) for name in outcomes[0]}
    single = found[SINGLE].slowdown if SINGLE in found else None
    return tuple(
        Row(
            name,
            figures,
            gap_closed(figures.slowdown, single),
            _mean([fold[name].leaves for fold in outcomes]),
            sum(fold[name].configs for fold in outcomes) / len(outcomes),
        )
        for name, figures in found.items()
    )


def _outcome(rule: Rule, unseen: Problem, everything: Problem) -> Outcome:
    launched = len(set(rule.choose(everything)))
    return Outcome(judge(rule.choose(unseen), unseen), rule.leaves, launched)


def _mean(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return sum(known) / len(known) if len(known) == len(counts) else None
