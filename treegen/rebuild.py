"""What a build makes of one table, given yesterday's tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treegen.compiler import fit_tree
from treegen.evaluate import Learnt, cross_validate, held_out
from treegen.evaluation.choices import Fit
from treegen.fit.evidence import Ints
from treegen.fit.keep import How, Kept, keep
from treegen.passes.unguard import unguard
from treegen.problem import Problem
from treegen.tree import Tree


@dataclass(frozen=True)
class Rebuilt:
    """fresh: the tree fitted to the whole table. kept: what a build takes."""

    fresh: Tree
    kept: Kept


def rebuild(
    problem: Problem,
    old: Tree | str | None,
    fit: Fit = fit_tree,
    learnt: Sequence[Learnt] | None = None,
    *,
    other_scenarios: bool = False,
) -> Rebuilt:
    """Fit, and keep of yesterday's tree what is as good.

    old: yesterday's tree with its guards; a text says why there is one that cannot be read. learnt: what
    `cross_validate` gives, if it is there; else that is done here, where it matters. other_scenarios:
    whether yesterday's table held other ones.
    """
    fresh = unguard(fit(problem), problem)  # what looks like a guard would be taken for one tomorrow
    if old is None or isinstance(old, str):
        return Rebuilt(fresh, Kept(fresh, How.FRESH, why=old))

    def unseen() -> Ints:
        return held_out(problem, cross_validate(problem, fit) if learnt is None else learnt)

    return Rebuilt(fresh, keep(problem, fresh, unseen, old, other_scenarios=other_scenarios))
