"""All ways of choosing configs: each is trained on the same scenarios and scored on the same others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from treegen.core.problem import Problem
from treegen.core.spec import Budget
from treegen.core.table import Cells
from treegen.core.tree import Tree, size
from treegen.crossval import helion
from treegen.crossval.choices import Choices, Fit, joined, score_decisions
from treegen.crossval.folds import Fold
from treegen.crossval.heldout import Quality, gap_closed, quality
from treegen.crossval.parallel import ParallelMap
from treegen.crossval.peers import Method, Rule, classifier, forest, greedy, regressor, single_best, tree_rule

OURS, SINGLE, FOREST = "ours", "single_best", "forest"


@dataclass(frozen=True)
class WayScore:
    """The score of one way to choose. Counts are means over the folds."""

    way: str
    quality: Quality
    gap_closed: float | None  # None where the single best config loses nothing
    leaves: float | None  # None where the way makes no single tree
    configs: float  # distinct configs that it launches anywhere in the table


@dataclass(frozen=True)
class WayChoices:
    """The choices of one way after training once."""

    choices: Choices
    leaves: int | None
    configs: int  # distinct configs that it launches in all scenarios of the table


@dataclass(frozen=True)
class FoldTask:
    """One fold of a problem, for another process."""

    problem: Problem
    fold: Fold
    fit: Fit
    ways: tuple[str, ...] | None = None  # which peers to score; None for all


@cache
def peers() -> Mapping[str, Method]:
    """The ways beside our tree, in the order of presentation; Helion's only where it is installed."""
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
    """Our tree's rule, then the peers' rules, with at most as many leaves and the same maximum depth."""
    budget = Budget(known.kernel.budget.max_depth, size(tree))
    names = [name for name in peers() if ways is None or name in ways]
    return {OURS: tree_rule(tree), **{name: peers()[name](known, budget) for name in names}}


def score_fold(task: FoldTask) -> dict[str, WayChoices]:
    """Train on the fold's training scenarios, and choose in its held-out ones."""
    known, unseen = task.problem.rows(task.fold.train), task.problem.rows(task.fold.test)
    rules = learn(known, task.fit(known), task.ways)
    return {name: _choices(rule, unseen, task.problem) for name, rule in rules.items()}


def held_out(
    problem: Problem, folds: Sequence[Fold], fit: Fit, run: ParallelMap, what: str
) -> tuple[WayScore, ...]:
    """Cross-validate all ways on the same folds."""
    choices = run(what, score_fold, [FoldTask(problem, fold, fit) for fold in folds])
    return scores(choices, problem.table.cells)


def on_others(problem: Problem, tree: Tree, others: Sequence[Problem]) -> list[tuple[WayScore, ...]]:
    """For each other table the scores of all ways, trained on the whole of `problem`."""
    rules = learn(problem, tree) if others else {}
    choices = [{name: _choices(rule, other, other) for name, rule in rules.items()} for other in others]
    return [
        scores([table_choices], other.table.cells)
        for table_choices, other in zip(choices, others, strict=True)
    ]


def scores(folds: Sequence[Mapping[str, WayChoices]], cells: Cells) -> tuple[WayScore, ...]:
    """One score per way from its choices in all folds."""
    qualities = {name: quality(joined([fold[name].choices for fold in folds]), cells) for name in folds[0]}
    single = qualities[SINGLE].slowdown if SINGLE in qualities else None
    return tuple(
        WayScore(
            name,
            figures,
            gap_closed(figures.slowdown, single),
            _mean([fold[name].leaves for fold in folds]),
            sum(fold[name].configs for fold in folds) / len(folds),
        )
        for name, figures in qualities.items()
    )


def _choices(rule: Rule, unseen: Problem, whole: Problem) -> WayChoices:
    launched = len(set(rule.choose(whole)))
    return WayChoices(score_decisions(rule.choose(unseen), unseen), rule.leaves, launched)


def _mean(counts: Sequence[int | None]) -> float | None:
    known = [count for count in counts if count is not None]
    return sum(known) / len(known) if len(known) == len(counts) else None
