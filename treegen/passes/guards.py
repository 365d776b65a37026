"""Pass: make every constraint hold at every integer point, by splits that lead to a config without bounds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.expr import names
from treegen.core.problem import UNIT, Problem, with_untimed_penalty
from treegen.core.spec import Config, Constraint
from treegen.core.tree import Leaf, Region, Split, Tree, halves, leaves, map_leaves
from treegen.passes.bounds import Bound, UnprovableConstraint, bound_of, bounds_of, implies, strictest

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GuardedLeaf:
    """A leaf's config, the bounds that its place in the tree leaves open, and the config beyond them."""

    config: Config
    bounds: list[Bound]
    second: Config


def guard_leaves(tree: Tree, problem: Problem, *, measured_only: bool = False) -> Tree:
    """Launch each leaf's config where it meets every constraint, and the leaf's second config elsewhere.

    The second config is the best in the leaf's scenarios among those that meet every constraint in the whole
    region of the leaf. The fallback is one of them: kernels must accept it for every shape.
    One split at the root guards all leaves whose second config is the fallback, if that excludes no measured
    value. It also covers leaves that the constraint does not bind.

    Args:
        tree: any tree. problem: its table. measured_only: leave out bounds on features that the table lacks.
    """
    guards = list(_guarded_leaves(tree, problem, measured_only))
    fallback = problem.kernel.fallback
    all_bounds = strictest(bound for leaf in guards for bound in leaf.bounds)
    others = {bound.feature for leaf in guards if leaf.second != fallback for bound in leaf.bounds}
    ranges = measured_ranges(problem, problem.names)
    at_root = [
        bound
        for bound in all_bounds
        if bound.feature not in others and (bound.feature not in ranges or implies(ranges, bound))
    ]
    guarded_at_root = {bound.feature for bound in at_root}
    in_order = iter(guards)

    def fenced(_: Leaf) -> Tree:
        leaf = next(in_order)
        bounds = [bound for bound in leaf.bounds if bound.feature not in guarded_at_root]
        return _fence(Leaf(leaf.config), bounds, Leaf(leaf.second))

    return _fence(map_leaves(tree, fenced), at_root, Leaf(fallback))


def _guarded_leaves(tree: Tree, problem: Problem, measured_only: bool) -> Iterator[GuardedLeaf]:
    """Every leaf, low side first."""
    kernel, device = problem.kernel, problem.device
    bounds = [bounds_of(config, kernel, device) for config in problem.configs]

    def visit(tree: Tree, region: Region, rows: Rows) -> Iterator[GuardedLeaf]:
        if isinstance(tree, Split):
            known = tree.feature in problem.names
            values = problem.column(tree.feature)[rows] if known else np.full(len(rows), tree.threshold)
            low, high = halves(tree, region)
            yield from visit(tree.low, low, rows[values <= tree.threshold])
            yield from visit(tree.high, high, rows[values > tree.threshold])
            return
        found = bounds_of(tree.config, kernel, device)
        everywhere = [
            column
            for column, needed in enumerate(bounds)
            if needed is not None and all(implies(region, bound) for bound in needed)
        ]
        second = _best(problem, everywhere, rows)
        if found is None:
            yield GuardedLeaf(second, [], second)
        else:
            found = [bound for bound in found if bound.feature in problem.names or not measured_only]
            needed = [bound for bound in strictest(found) if not implies(region, bound)]
            yield GuardedLeaf(tree.config, needed, second)

    trusted = measured_ranges(problem, kernel.trusted_as_measured)
    return visit(tree, trusted, np.arange(len(problem.cost)))


def outside_of(split: Split, below: bool, above: bool, problem: Problem) -> Leaf | None:
    """The side of a guard that a shape gets beyond its bound; None for a fitted split.

    It is a leaf that no scenario reaches. It holds the fallback, or a bound of a config on the other side
    ends at the threshold.

    Args:
        split: any split. below, above: whether a scenario reaches its low side, and its high side.
    """
    fallback = Leaf(problem.kernel.fallback)
    for side, reached, inside, is_upper in (
        (split.low, below, split.high, False),
        (split.high, above, split.low, True),
    ):
        if isinstance(side, Split) or reached:
            continue
        if side == fallback or ending(split, inside, is_upper, problem):
            return side
    return None


def ending(split: Split, inside: Tree, is_upper: bool, problem: Problem) -> list[Constraint]:
    """The constraints that allow a config of one side exactly up to (or from just above) the threshold."""
    configs = dict.fromkeys(leaf.config for leaf, _ in leaves(inside))
    return [
        constraint
        for constraint in problem.kernel.constraints
        if any(_ends(constraint, config, split, is_upper, problem) for config in configs)
    ]


def _ends(constraint: Constraint, config: Config, split: Split, is_upper: bool, problem: Problem) -> bool:
    if config == problem.kernel.fallback or not constraint.binds(config):
        return False
    if split.feature not in names(constraint.left) | names(constraint.right):
        return False
    try:
        bound = bound_of(constraint, config, problem.device)
    except UnprovableConstraint:
        return False
    if bound is None:
        return False
    return split.threshold == bound.greatest if is_upper else split.threshold + 1 == bound.least


def guard_trust(tree: Tree, problem: Problem) -> Tree:
    """Launch the fallback beyond the measured values of each feature in `trusted_as_measured`."""
    trusted = measured_ranges(problem, problem.kernel.trusted_as_measured)
    bounds = [Bound(name, *ends) for name, ends in trusted.items()]
    return _fence(tree, bounds, Leaf(problem.kernel.fallback))


def measured_ranges(problem: Problem, features: Iterable[str]) -> dict[str, tuple[int, int]]:
    """The least and the greatest measured value of those features that the table holds."""
    columns = {name: problem.column(name) for name in features if name in problem.names}
    return {name: (int(column.min()), int(column.max())) for name, column in columns.items()}


def _best(problem: Problem, columns: Sequence[int], rows: Rows) -> Config:
    """The config of least total cost in some scenarios; the fallback if none of these configs is better.

    A fallback that is not in the table counts as e times slower than the best, or as never a winner.
    """
    cost = with_untimed_penalty(problem.cost[rows]).sum(axis=0)
    best, least = problem.kernel.fallback, UNIT * len(rows)
    if best in problem.configs:
        least = cost[problem.configs.index(best)]
    for column in columns:
        if cost[column] < least:
            best, least = problem.configs[column], cost[column]
    return best


def _fence(tree: Tree, bounds: Iterable[Bound], outside: Leaf) -> Tree:
    """The tree within the bounds and `outside` beyond them; a lower bound is tested before an upper one."""
    for bound in bounds:
        if bound.greatest is not None:
            tree = Split(bound.feature, bound.greatest, tree, outside)
        if bound.least is not None:
            tree = Split(bound.feature, bound.least - 1, outside, tree)
    return tree
