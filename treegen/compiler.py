"""From a problem to the finished tree: fit, then passes."""

from __future__ import annotations

from treegen.errors import InputError
from treegen.fit.apply import costs
from treegen.fit.evidence import evidence_of
from treegen.fit.fitting import fit
from treegen.fit.prune import prune
from treegen.passes.align import align
from treegen.passes.guards import guard
from treegen.passes.simplify import simplify
from treegen.passes.unguard import unguard
from treegen.problem import FORBIDDEN, Problem
from treegen.tree import Tree, same

_ROUNDS = 8


def fit_tree(problem: Problem) -> Tree:
    """The tree that fits a problem within its kernel's budget, without the guards of its constraints."""
    fitted = prune(evidence_of(problem), fit(problem, problem.kernel.budget))
    return simplify(align(simplify(fitted), problem.kernel, problem.device))


def guarded(problem: Problem, tree: Tree) -> Tree:
    """The tree that a device's module is printed from: with the guards that the kernel's constraints need.

    Fitting keeps to the budget of the kernel; guards come on top. Raises UnprovableConstraint, and InputError
    where the tree launches what failed: none within the budget avoids it.
    """
    kernel = problem.kernel
    failing = int((costs(tree, problem) >= FORBIDDEN).sum())
    if failing:
        budget = f"{kernel.budget.max_leaves} leaves and depth {kernel.budget.max_depth}"
        what = f"{kernel.name}: {failing} scenarios would get a config that failed; {budget} are too few"
        raise InputError(problem.table.folder, what)
    measured = {
        name: (int(problem.column(name).min()), int(problem.column(name).max())) for name in problem.names
    }

    def printed(fitted: Tree) -> Tree:
        return simplify(guard(fitted, kernel, problem.device, measured))

    # What tomorrow's build reads back and guards again must be the same module.
    result = printed(tree)
    for _ in range(_ROUNDS):
        again = printed(unguard(result, problem))
        if same(again, result):
            break
        result = again
    return result


def compile_tree(problem: Problem) -> Tree:
    """A fresh tree, guarded."""
    return guarded(problem, fit_tree(problem))
