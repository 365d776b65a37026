"""Build one table's tree, given the previous tree."""

from __future__ import annotations

from collections.abc import Sequence

from treegen.core.problem import Problem
from treegen.core.tree import Tree
from treegen.crossval.choices import Fit
from treegen.crossval.evaluate import FoldTree, cross_validate, held_out
from treegen.fit.choice_costs import Ints
from treegen.passes.strip_guards import strip_guards
from treegen.update.keep import ChosenTree, TreeOrigin, keep


def rebuild(
    problem: Problem,
    previous: Tree | str | None,
    fit: Fit,
    fold_trees: Sequence[FoldTree] | None = None,
    *,
    other_scenarios: bool = False,
    changed: str | None = None,
) -> ChosenTree:
    """Fit a tree, and keep the parts of the previous one that are as good.

    Args:
        problem: the table
        previous: the previous tree with its guards; or the reason why it cannot be read; or None
        fit: fits a tree
        fold_trees: the result of `cross_validate`, which runs here on demand if this is None
        other_scenarios: whether the previous table had other scenarios
        changed: what forbids to keep the previous tree, in words; None for nothing
    """
    fresh = strip_guards(fit(problem), problem)  # the next build would strip what looks like a guard
    if previous is None or isinstance(previous, str):
        return ChosenTree(fresh, TreeOrigin.FRESH, fresh, why_fresh=previous)

    def unseen() -> Ints:
        return held_out(problem, cross_validate(problem, fit) if fold_trees is None else fold_trees)

    return keep(problem, fresh, unseen, previous, other_scenarios=other_scenarios, changed=changed)
