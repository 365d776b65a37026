"""Pass: make every constraint hold at every integer point, by splits that lead to other configs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError
from treegen.core.interval import End, feature_intervals, is_empty
from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, Problem, with_untimed_penalty
from treegen.core.spec import Config, Constraint
from treegen.core.tree import Leaf, Region, Split, Tree, halves, leaves, map_leaves, same_without_gaps
from treegen.fit.costs import costs
from treegen.passes.bounds import (
    Bound,
    UnprovableConstraint,
    bound_of,
    bounds_of,
    divided,
    excludes,
    implies,
    strictest,
)
from treegen.passes.simplify import simplify

Rows = npt.NDArray[np.int64]

_PRICE = 0.1  # how much faster a config must be for each guard that it needs beyond a bound


@dataclass(frozen=True)
class Guard:
    """A bound of a config, and what is launched below and above it; None for an end that it does not have."""

    bound: Bound
    below: Tree | None
    above: Tree | None

    def around(self, tree: Tree) -> Tree:
        """The tree within the bound, whose lower end is tested before the upper one."""
        if self.above is not None and self.bound.greatest is not None:
            tree = Split(self.bound.feature, self.bound.greatest, tree, self.above)
        if self.below is not None and self.bound.least is not None:
            tree = Split(self.bound.feature, self.bound.least - 1, self.below, tree)
        return tree


def guard_leaves(tree: Tree, problem: Problem, *, measured_only: bool = False) -> Tree:
    """Launch each leaf's config where it meets every constraint, and the leaf's next config elsewhere.

    The next config is the best in the leaf's scenarios among those that may be launched beyond the bound. If
    it has bounds there, it is guarded, too, and must be faster by `_PRICE` for each. The fallback has none:
    kernels must accept it for every shape. One split at the root serves all leaves that launch the fallback
    beyond a bound, if it excludes no measured value. It also covers leaves that the constraint does not bind.

    Args:
        tree: any tree. problem: its table. measured_only: leave out bounds on features that the table lacks.
    """
    with_guards = list(_LeafGuards(problem, measured_only).of_leaves(tree))
    fallback = Leaf(problem.kernel.fallback)
    guards = [guard for _, guards in with_guards for guard in guards]
    others = {
        g.bound.feature for g in guards if any(side not in (None, fallback) for side in (g.below, g.above))
    }
    ranges = measured_ranges(problem, problem.names)
    at_root = [
        bound
        for bound in strictest(guard.bound for guard in guards)
        if bound.feature not in others and (bound.feature not in ranges or implies(ranges, bound))
    ]
    guarded_at_root = {bound.feature for bound in at_root}
    in_order = iter(with_guards)

    def guarded(_: Leaf) -> Tree:
        config, guards = next(in_order)
        return _around(Leaf(config), [g for g in guards if g.bound.feature not in guarded_at_root])

    return _fence(map_leaves(tree, guarded), at_root, fallback)


class _LeafGuards:
    """Finds the guards that the leaves of a problem's trees need."""

    def __init__(self, problem: Problem, measured_only: bool) -> None:
        self._problem = problem
        self._known = set(problem.names) if measured_only else None
        self._bounds = [self._bounds_of(config) for config in problem.configs]
        rules = problem.kernel.constraints
        self._kernel = problem.kernel.only(name for rule in rules for name in rule.names)

    def of_leaves(self, tree: Tree) -> Iterator[tuple[Config, list[Guard]]]:
        """The config of every leaf and its guards, the innermost first; low sides first."""
        trusted = measured_ranges(self._problem, self._problem.kernel.trusted_as_measured)
        return self._visit(tree, trusted, np.arange(len(self._problem.cost)))

    def _visit(self, tree: Tree, region: Region, rows: Rows) -> Iterator[tuple[Config, list[Guard]]]:
        if isinstance(tree, Split):
            known = tree.feature in self._problem.names
            values = self._problem.column(tree.feature)[rows] if known else np.full(len(rows), tree.threshold)
            low, high = halves(tree, region)
            yield from self._visit(tree.low, low, rows[values <= tree.threshold])
            yield from self._visit(tree.high, high, rows[values > tree.threshold])
            return
        bounds = self._bounds_of(tree.config)
        config, bounds = self._next(region, rows) if bounds is None else (tree.config, bounds)
        yield config, self._guards(bounds, region, rows)

    def _bounds_of(self, config: Config) -> list[Bound] | None:
        bounds = bounds_of(config, self._problem.kernel, self._problem.device)
        if bounds is None:
            return None
        return [bound for bound in strictest(bounds) if self._known is None or bound.feature in self._known]

    def _guards(self, bounds: Sequence[Bound], region: Region, rows: Rows) -> list[Guard]:
        guards, region = [], self._narrowed(region)
        for bound in reversed([bound for bound in bounds if not implies(region, bound)]):
            below, region, above = divided(region, bound)
            beyond = [None if side is None else self._beyond(side, rows) for side in (below, above)]
            guards.append(Guard(bound, *beyond))
        return guards[::-1]

    def _narrowed(self, region: Region) -> Region:
        """The region with derived features narrowed by the others; unchanged if it holds no shape."""
        box = feature_intervals(region, self._kernel, self._problem.device.limits)
        if any(map(is_empty, box.values())):
            return region
        derived = {name: box[name] for name in self._kernel.derived if name in box}
        return {**region, **{name: (_end(low), _end(high)) for name, (low, high) in derived.items()}}

    def _beyond(self, region: Region, rows: Rows) -> Tree:
        """What a leaf with these scenarios launches in a region without any."""
        config, bounds = self._next(region, rows)
        return _around(Leaf(config), self._guards(bounds, region, rows))

    def _next(self, region: Region, rows: Rows) -> tuple[Config, list[Bound]]:
        """The config that is best in some scenarios, of those allowed somewhere in a region, and its bounds.

        It is timed in at least half of the scenarios. A fallback that is not in the table counts as e times
        slower than the best, or as never a winner.
        """
        problem, region = self._problem, self._narrowed(region)
        cost = with_untimed_penalty(problem.cost[rows]).sum(axis=0)
        timed = 2 * (problem.cost[rows] != UNTIMED).sum(axis=0) >= len(rows)
        fallback = problem.kernel.fallback
        known = fallback in problem.configs
        least = float(cost[problem.configs.index(fallback)] if known else UNIT * len(rows))
        best: tuple[Config, list[Bound]] = fallback, []
        candidates = zip(problem.configs, self._bounds, cost.tolist(), timed.tolist(), strict=True)
        for config, bounds, own, is_timed in candidates:
            if not is_timed or bounds is None or any(excludes(region, bound) for bound in bounds):
                continue
            open_bounds = [bound for bound in bounds if not implies(region, bound)]
            priced = own + _PRICE * UNIT * len(open_bounds) * len(rows)
            if priced < least:
                best, least = (config, bounds), priced
        return best


def _end(end: End) -> int | None:
    return end if isinstance(end, int) else None


def _around(tree: Tree, guards: Iterable[Guard]) -> Tree:
    for guard in guards:
        tree = guard.around(tree)
    return tree


def outside_of(split: Split, below: bool, above: bool, problem: Problem) -> Tree | None:
    """The side of a guard that a shape gets beyond its bound; None for a fitted split.

    No scenario reaches it. It is the fallback, or a bound of a config on the other side ends at the
    threshold.

    Args:
        split: any split. below, above: whether a scenario reaches its low side, and its high side.
    """
    fallback = Leaf(problem.kernel.fallback)
    for side, reached, inside, is_upper in (
        (split.low, below, split.high, False),
        (split.high, above, split.low, True),
    ):
        if not reached and (side == fallback or ending(split, inside, is_upper, problem)):
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
    if split.feature not in constraint.names:
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


def _fence(tree: Tree, bounds: Iterable[Bound], outside: Leaf) -> Tree:
    """The tree within the bounds, and `outside` beyond them."""
    return _around(tree, (Guard(bound, outside, outside) for bound in bounds))


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


def strip_guards(tree: Tree, problem: Problem) -> Tree:
    """The tree, simplified, without its guards.

    `guards.outside_of` says what a guard is. Other parts that no scenario reaches stay: the tree may come
    from a table with more scenarios. Splits get their gaps from the scenarios that reach them.
    """
    return simplify(_stripped(simplify(tree), problem, np.arange(len(problem.cost))))


def _stripped(tree: Tree, problem: Problem, rows: Rows) -> Tree:
    if isinstance(tree, Leaf):
        return tree
    known = tree.feature in problem.names
    values = problem.column(tree.feature)[rows] if known else np.empty(0, dtype=np.int64)
    is_low = values <= tree.threshold
    below, above = values[is_low], values[~is_low]
    outside = outside_of(tree, len(below) > 0, len(above) > 0, problem)
    if outside is not None:
        return _stripped(tree.high if outside is tree.low else tree.low, problem, rows)
    if not known:
        return tree  # the tree was fitted to another table
    gap = (int(below.max()), int(above.min())) if len(below) and len(above) else None
    low, high = _stripped(tree.low, problem, rows[is_low]), _stripped(tree.high, problem, rows[~is_low])
    return Split(tree.feature, tree.threshold, low, high, gap)
