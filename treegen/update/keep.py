"""Decide which tree a build takes: the previous one, as far as it is as good as a fresh one within noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from treegen.core.problem import Problem
from treegen.core.table import Cells
from treegen.core.tree import Tree, depth, same_without_gaps, size, split_features
from treegen.crossval.folds import Evaluation
from treegen.fit.costs import CostDrop, Ints, choice_costs_of, is_significant
from treegen.passes.guards import strip_guards
from treegen.update.edits import WORTH, edit, repair

Z_FRESH = 2.0
"""Standard errors by which a fresh tree must be better where it was fitted and held out, P = 0.023."""

Z_SURE = 3.0
"""Standard errors by which a fresh tree must be better where it was fitted alone, P = 0.0013."""


class TreeOrigin(StrEnum):
    KEPT = "kept"
    EDITED = "edited"
    FRESH = "fresh"


@dataclass(frozen=True)
class ChosenTree:
    """The tree that a build takes."""

    tree: Tree  # without guards
    origin: TreeOrigin
    fresh: Tree  # the tree that was fitted to the whole table, without guards
    leaves: int = 0  # leaves of the previous tree that got another config
    splits: int = 0  # splits of the previous tree that were dropped
    why_fresh: str | None = None  # why the previous tree, if there was one, was not kept
    # The share of the time that the fresh tree saves by this table, and its standard error over scenarios.
    forgone: tuple[float, float] | None = None

    def __str__(self) -> str:
        """As the lock states it: kept, fresh, or such as `edited: 2 leaves, 1 split`."""
        counts = ((self.leaves, "leaf", "leaves"), (self.splits, "split", "splits"))
        words = [f"{count} {one if count == 1 else more}" for count, one, more in counts if count]
        return f"{self.origin}: {', '.join(words)}" if words else str(self.origin)


@dataclass(frozen=True)
class DeviceHeuristic:
    """One device's finished tree and its inputs."""

    problem: Problem
    tree: Tree  # `chosen.tree` with guards
    evaluation: Evaluation | None  # held-out figures of fresh trees; None for a small table
    chosen: ChosenTree


@dataclass(frozen=True)
class Build:
    """Everything that a build writes."""

    heuristics: tuple[DeviceHeuristic, ...]
    files: Mapping[str, str]  # texts by their path below the output folder


def keep(
    problem: Problem,
    previous: Tree | str | None,
    fitted: Tree,
    held_out: Callable[[], Ints],
    *,
    other_scenarios: bool = False,
    changed: str | None = None,
) -> ChosenTree:
    """The previous tree with the edits that are significant, unless fresh trees are significantly better.

    A fresh tree is taken only if it is worth it: by the table, it saves over 0.5% of the time on average. It
    is taken if that is three standard errors above 0, so a kept tree never forgoes more on such evidence. It
    is also taken at two standard errors if trees of the same fit are better at two standard errors in
    scenarios that they have not seen. docs/stability.md explains the tests, and how untimed choices count.

    Args:
        problem: the table
        previous: the previous tree with its guards, or why there is none to keep; None without a word
        fitted: the tree that was fitted to the table
        held_out: returns [repeats, scenarios] int64 costs of trees that were fitted without the scenario;
            called only if they matter
        other_scenarios: whether the previous table had other scenarios: then a fresh tree also wins if it is
            better with untimed choices penalised on both sides
        changed: what forbids to keep the previous tree, in words; None for nothing
    """
    fresh = strip_guards(fitted, problem)  # the next build would strip what looks like a guard

    def take_fresh(why: str | None) -> ChosenTree:
        return ChosenTree(fresh, TreeOrigin.FRESH, fresh, why_fresh=why)

    if previous is None or isinstance(previous, str):
        return take_fresh(previous)
    previous = strip_guards(previous, problem)
    if same_without_gaps(previous, fresh):
        return ChosenTree(fresh, TreeOrigin.KEPT, fresh)
    if why := _not_allowed(problem, previous) or changed:
        return take_fresh(why)
    costs = choice_costs_of(problem)
    repaired = repair(costs, previous)
    if costs.fails(repaired.tree, costs.all_rows):
        return take_fresh(
            "it launches a config that failed or breaks a constraint, and no single config would do"
        )
    edited = edit(costs, repaired.tree)
    by_table = problem.cost[costs.all_rows, costs.choices(fresh, costs.all_rows)][None]
    for penalise_untimed in (False, True) if other_scenarios else (False,):
        drop = costs.drop_to(edited.tree, by_table, penalise_untimed=penalise_untimed)
        if not is_significant(drop, Z_FRESH, WORTH):
            continue
        where = "by this table"
        if penalise_untimed or not is_significant(drop, Z_SURE, WORTH):
            drop = costs.drop_to(edited.tree, held_out(), penalise_untimed=penalise_untimed)
            if not is_significant(drop, Z_FRESH):
                continue
            where = "in scenarios that it has not seen"
        return take_fresh(_better(problem, drop, where, penalise_untimed))
    leaves, splits = repaired.leaves + edited.leaves, repaired.splits + edited.splits
    origin = TreeOrigin.EDITED if leaves or splits else TreeOrigin.KEPT
    forgone = costs.drop_to(edited.tree, by_table, penalise_untimed=False).mean()
    return ChosenTree(edited.tree, origin, fresh, leaves, splits, forgone=forgone)


def _better(problem: Problem, drop: CostDrop, where: str, penalise_untimed: bool) -> str:
    text = f"a fresh tree chooses better {where}"
    if problem.table.cells is Cells.WINNERS:
        return text
    penalised = ", with untimed choices penalised" if penalise_untimed else ""
    mean, error = drop.mean()
    return f"{text}, by {math.expm1(mean):.1%} +- {2 * error:.1%}{penalised}"


def _not_allowed(problem: Problem, tree: Tree) -> str | None:
    """What the spec does not allow in a tree, if anything."""
    budget = problem.kernel.budget
    for feature in split_features(tree):
        if feature not in problem.split_on:
            return f"it splits on {feature}, which split_on no longer names"
    if size(tree) > budget.max_leaves:
        return f"it has {size(tree)} leaves, and the budget is {budget.max_leaves}"
    if depth(tree) > budget.max_depth:
        return f"it is {depth(tree)} splits deep, and the budget is {budget.max_depth}"
    return None
