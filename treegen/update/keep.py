"""Which tree a build takes: yesterday's, as far as it is as good as a fresh one within noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from treegen.core.problem import UNIT, Problem
from treegen.core.table import Cells
from treegen.core.tree import Tree, depth, same_without_gaps, size, split_features
from treegen.fit.choice_costs import Ints, choice_costs_of
from treegen.fit.significance import CostDrop, pays
from treegen.passes.strip_guards import strip_guards
from treegen.update.edits import edit, repair

BETTER = 2.0
"""Standard deviations of noise that a fresh tree must gain, P = 0.023: it is a single hypothesis."""


class How(StrEnum):
    KEPT = "kept"
    EDITED = "edited"
    FRESH = "fresh"


@dataclass(frozen=True)
class Kept:
    """The tree to build, without guards. leaves, splits: how many of yesterday's leaves got another config,
    and how many of its splits were left out. why: why yesterday's tree was not kept, if there was one."""

    tree: Tree
    how: How
    leaves: int = 0
    splits: int = 0
    why: str | None = None

    def __str__(self) -> str:
        """kept, fresh, or as in: edited: 2 leaves, 1 split."""
        leaves, splits = f"{self.leaves} leaves", f"{self.splits} splits"
        counts = [leaves if self.leaves > 1 else "1 leaf"] if self.leaves else []
        counts += [splits if self.splits > 1 else "1 split"] if self.splits else []
        return ": ".join([self.how, *([", ".join(counts)] if counts else [])])


def keep(
    problem: Problem,
    fresh: Tree,
    held_out: Callable[[], Ints],
    old: Tree,
    *,
    other_scenarios: bool = False,
) -> Kept:
    """Yesterday's tree with the edits that pay, unless fresh trees are significantly better.

    fresh: fitted to the problem. held_out gives [repeats, scenarios] int64, what the choices of trees cost
    that were fitted without the scenario (cross-validation). old: as it was printed, with its guards.

    The old tree was not fitted to this table, so fresh ones must be better where they were not, either; that
    they are better where they were fitted is the least, and tested first, as it costs nothing. The test is
    paired over scenarios. It takes folds for independent, although their trees share most scenarios
    (Dietterich, Neural Computation 10, 1998), so its P is somewhat too small.

    A choice that was not timed tells nothing of the old tree, which was fitted when it was timed. Not so if
    the table holds `other_scenarios` than yesterday's: then fresh trees may also win where such choices
    are charged, on both sides.
    """
    old = strip_guards(old, problem)
    if same_without_gaps(old, fresh):
        return Kept(fresh, How.KEPT)
    why = _excess(problem, old)
    if why is not None:
        return Kept(fresh, How.FRESH, why=why)
    evidence = choice_costs_of(problem)
    repaired = repair(evidence, old)
    if evidence.fails(repaired.tree, evidence.every):
        why = "it launches what failed or breaks a constraint where no single config would do"
        return Kept(fresh, How.FRESH, why=why)
    edited = edit(evidence, repaired.tree)
    fitted = problem.cost[evidence.every, evidence.choices(fresh, evidence.every)]
    for charge in (False, True) if other_scenarios else (False,):
        if not pays(evidence.fall_to(edited.tree, fitted[None], charge=charge), evidence.noise, BETTER):
            continue
        fall = evidence.fall_to(edited.tree, held_out(), charge=charge)
        if pays(fall, evidence.noise, BETTER):
            return Kept(fresh, How.FRESH, why=_praise(problem, fall, charge))
    leaves, splits = repaired.leaves + edited.leaves, repaired.splits + edited.splits
    return Kept(edited.tree, How.EDITED if leaves or splits else How.KEPT, leaves, splits)


def _praise(problem: Problem, fall: CostDrop, charge: bool) -> str:
    text = "fresh trees choose better in scenarios that they have not seen"
    if problem.table.cells is Cells.WINNERS:
        return text
    charged = " with what was not timed charged" if charge else ""
    return f"{text}, by {math.expm1(int(fall.cost.sum()) / len(fall.cost) / UNIT):.1%}{charged}"


def _excess(problem: Problem, tree: Tree) -> str | None:
    """What the spec does not allow any more, if anything."""
    budget = problem.kernel.budget
    for feature in split_features(tree):
        if feature not in problem.split_on:
            return f"it asks about {feature}, which trees may no longer split on"
    if size(tree) > budget.max_leaves:
        return f"it has {size(tree)} leaves, and the budget is {budget.max_leaves}"
    if depth(tree) > budget.max_depth:
        return f"it is {depth(tree)} splits deep, and the budget is {budget.max_depth}"
    return None
