"""Pass: guard a tree so that stripping its guards and guarding it again changes nothing."""

from __future__ import annotations

from treegen.core.errors import InputError
from treegen.core.problem import FORBIDDEN, Problem
from treegen.core.tree import Tree, same_without_gaps
from treegen.fit.tree_costs import costs
from treegen.passes.guards import guard_leaves, guard_trust
from treegen.passes.simplify import simplify
from treegen.passes.strip_guards import strip_guards

_ROUNDS = 8


def guard_tree(problem: Problem, tree: Tree) -> Tree:
    """The tree that a device's module is printed from, with the guards that the kernel's constraints require.

    The kernel's budget limits the fitted tree; guards are added on top. Raises UnprovableConstraint. Raises
    InputError if the tree launches a config that failed, because no tree within the budget avoids it.
    """
    kernel = problem.kernel
    failing = int((costs(tree, problem) >= FORBIDDEN).sum())
    if failing:
        budget = f"{kernel.budget.max_leaves} leaves and depth {kernel.budget.max_depth}"
        what = f"{kernel.name}: {failing} scenarios would get a config that failed; {budget} are too few"
        raise InputError(problem.table.folder, what)

    def guarded(simplified: Tree) -> Tree:
        return simplify(guard_trust(guard_leaves(simplified, problem), problem))

    result = guarded(tree)
    for _ in range(_ROUNDS):
        again = guarded(strip_guards(result, problem))
        if same_without_gaps(again, result):
            break
        result = again
    return result
