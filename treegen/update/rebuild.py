"""Choose one table's tree: the fitted one, the previous one, or the previous one with parts replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from treegen.core.problem import Problem
from treegen.core.tree import Tree
from treegen.crossval.folds import FoldTree, held_out
from treegen.fit.choice_costs import Ints
from treegen.passes.strip_guards import strip_guards
from treegen.update.keep import ChosenTree, TreeOrigin, keep


def rebuild(
    problem: Problem,
    previous: Tree | str | None,
    fitted: Tree,
    fold_trees: Callable[[], Sequence[FoldTree]],
    *,
    other_scenarios: bool = False,
    changed: str | None = None,
) -> ChosenTree:
    """Keep the parts of the previous tree that are as good as a fitted one.

    Args:
        problem: the table
        previous: the previous tree with its guards; or the reason why it cannot be read; or None
        fitted: the tree of the whole table
        fold_trees: returns the trees of its folds; called only if they matter
        other_scenarios: whether the previous table had other scenarios
        changed: what forbids to keep the previous tree, in words; None for nothing
    """
    fresh = strip_guards(fitted, problem)  # the next build would strip what looks like a guard
    if previous is None or isinstance(previous, str):
        return ChosenTree(fresh, TreeOrigin.FRESH, fresh, why_fresh=previous)

    def unseen() -> Ints:
        return held_out(problem, fold_trees())

    return keep(problem, fresh, unseen, previous, other_scenarios=other_scenarios, changed=changed)
