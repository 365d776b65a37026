"""What a build makes of one table, given yesterday's tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treegen.core.problem import Problem
from treegen.core.tree import Tree
from treegen.crossval.choices import Fit
from treegen.crossval.evaluate import FoldTree, cross_validate, held_out
from treegen.fit.choice_costs import Ints
from treegen.passes.strip_guards import strip_guards
from treegen.update.keep import How, Kept, keep


@dataclass(frozen=True)
class Rebuilt:
    """fresh: the tree fitted to the whole table. kept: what a build takes."""

    fresh: Tree
    kept: Kept


def rebuild(
    problem: Problem,
    old: Tree | str | None,
    fit: Fit,
    fold_trees: Sequence[FoldTree] | None = None,
    *,
    other_scenarios: bool = False,
) -> Rebuilt:
    """Fit, and keep of yesterday's tree what is as good.

    old: yesterday's tree with its guards; a text says why there is one that cannot be read. fold_trees: what
    `cross_validate` gives, if it is there; else that is done here, where it matters. other_scenarios:
    whether yesterday's table held other ones.
    """
    fresh = strip_guards(fit(problem), problem)  # what looks like a guard would be taken for one tomorrow
    if old is None or isinstance(old, str):
        return Rebuilt(fresh, Kept(fresh, How.FRESH, why=old))

    def unseen() -> Ints:
        return held_out(problem, cross_validate(problem, fit) if fold_trees is None else fold_trees)

    return Rebuilt(fresh, keep(problem, fresh, unseen, old, other_scenarios=other_scenarios))
