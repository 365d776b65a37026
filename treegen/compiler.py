"""From a problem to the finished tree: fit, then passes."""

from __future__ import annotations

from treegen.errors import InputError
from treegen.fit.apply import costs
from treegen.fit.size import fit
from treegen.passes.guards import guard
from treegen.passes.simplify import simplify
from treegen.problem import FORBIDDEN, Problem
from treegen.tree import Tree


def compile_tree(problem: Problem) -> Tree:
    """The tree that a device's module is printed from.

    Fitting keeps to the kernel's budget; the guards that its constraints need come on top. Raises
    UnprovableConstraint, and InputError where no tree within the budget avoids what failed.
    """
    kernel = problem.kernel
    measured = {
        name: (int(problem.column(name).min()), int(problem.column(name).max())) for name in problem.names
    }
    fitted = simplify(fit(problem, kernel.budget))
    failing = int((costs(fitted, problem) >= FORBIDDEN).sum())
    if failing:
        budget = f"{kernel.budget.max_leaves} leaves and depth {kernel.budget.max_depth}"
        what = f"{kernel.name}: {failing} scenarios would get a config that failed; {budget} are too few"
        raise InputError(problem.table.folder, what)
    return simplify(guard(fitted, kernel, problem.device, measured))
