"""Pass: make every constraint hold at every integer point, by splits that lead to the fallback."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from treegen.core import expr
from treegen.core.problem import holds
from treegen.core.spec import Config, Constraint, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree, leaves, map_leaves

_FAR = 1 << 200  # beyond any feature value


class UnprovableConstraint(ValueError):
    """A constraint that this pass cannot turn into a bound on one feature; the message gives the reason."""

    def __init__(self, constraint: Constraint, what: str) -> None:
        super().__init__(f"constraint {constraint.text!r} {what}")
        self.line = constraint.line


@dataclass(frozen=True)
class Bound:
    """The range in which a constraint holds for one config: least <= feature <= greatest (None: no bound)."""

    feature: str
    least: int | None
    greatest: int | None


def guard(
    tree: Tree, kernel: KernelSpec, device: DeviceSpec, measured: Mapping[str, tuple[int, int]]
) -> Tree:
    """Launch a tree's config wherever it meets every constraint, and the fallback elsewhere.

    The fallback is also launched below the least and above the greatest measured value of each feature in
    `trusted_as_measured`. `measured` holds these two values of each feature.

    One split at the root guards all leaves if the strictest bound of all leaves excludes no measured value.
    It also covers leaves of variants that the constraint does not bind. Otherwise each bound leaf gets a
    guard. The fallback needs none: kernels must accept it for every shape.
    """
    bounds = {leaf.config: bounds_of(leaf.config, kernel, device) for leaf, _ in leaves(tree)}
    strictest = _strictest(bound for found in bounds.values() if found is not None for bound in found)
    at_root = [bound for bound in strictest if _leaves_free(bound, measured.get(bound.feature))]
    guarded_at_root = {bound.feature for bound in at_root}
    trusted = [Bound(name, *measured[name]) for name in kernel.trusted_as_measured if name in measured]
    fallback = Leaf(kernel.fallback)

    def guarded(leaf: Leaf) -> Tree:
        found = bounds[leaf.config]
        if found is None:
            return fallback
        return _fence(leaf, [b for b in _strictest(found) if b.feature not in guarded_at_root], fallback)

    return _fence(map_leaves(tree, guarded), _strictest([*trusted, *at_root]), fallback)


def bounds_of(config: Config, kernel: KernelSpec, device: DeviceSpec) -> list[Bound] | None:
    """The bounds within which a config may be launched; None if it may be launched nowhere."""
    if config == kernel.fallback:
        return []
    bounds = []
    for constraint in kernel.constraints:
        if not constraint.binds(config):
            continue
        bound = bound_of(constraint, config, device)
        if bound is None:
            return None
        if (bound.least, bound.greatest) != (None, None):
            bounds.append(bound)
    return bounds


def bound_of(constraint: Constraint, config: Config, device: DeviceSpec) -> Bound | None:
    """The feature values for which a config meets a constraint; None if there are none.

    The config's numbers and the limits are inserted first. Raises UnprovableConstraint if more than one
    feature remains, or if the constraint is not monotone in the one that remains.
    """
    known = {**device.limits, **dict(config.parameters)}
    left, right = expr.substitute(constraint.left, known), expr.substitute(constraint.right, known)
    if constraint.operator in (">=", ">"):
        left, right = right, left  # from here on left <= right (or <)
    features = expr.names(left) | expr.names(right)
    if not features:
        return Bound("", None, None) if holds(constraint, known) else None
    if len(features) > 1:
        raise UnprovableConstraint(
            constraint,
            f"ties {' and '.join(sorted(features))} together; name the combination a derived feature",
        )
    (feature,) = features
    if not expr.names(right) and expr.is_nondecreasing(left):
        rising = False  # the constraint ends where the feature grows too large
    elif not expr.names(left) and expr.is_nondecreasing(right):
        rising = True
    else:
        raise UnprovableConstraint(constraint, f"is not provably monotone in {feature}")

    def meets(value: int) -> bool:
        return holds(constraint, {**known, feature: value})

    if rising:
        least = _first(meets)
        return None if least is None else Bound(feature, None if least == -_FAR else least, None)
    beyond = _first(lambda value: not meets(value))
    if beyond == -_FAR:
        return None
    return Bound(feature, None, None if beyond is None else beyond - 1)


def _first(test: Callable[[int], bool]) -> int | None:
    """The least integer from -2^200 to 2^200 that passes a monotone test; None if none does."""
    low, high = -_FAR, _FAR
    if not test(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if test(middle) else (middle + 1, high)
    return low


def _strictest(bounds: Iterable[Bound]) -> list[Bound]:
    """One bound per feature, the intersection of its bounds, in order of first appearance."""
    result: dict[str, Bound] = {}
    for bound in bounds:
        have = result.get(bound.feature, Bound(bound.feature, None, None))
        least = max((b for b in (have.least, bound.least) if b is not None), default=None)
        greatest = min((b for b in (have.greatest, bound.greatest) if b is not None), default=None)
        result[bound.feature] = Bound(bound.feature, least, greatest)
    return list(result.values())


def _leaves_free(bound: Bound, measured: tuple[int, int] | None) -> bool:
    """Return whether the bound excludes nothing that was measured."""
    if measured is None:
        return True
    low, high = measured
    return (bound.least is None or bound.least <= low) and (bound.greatest is None or high <= bound.greatest)


def _fence(tree: Tree, bounds: Iterable[Bound], outside: Leaf) -> Tree:
    """The tree within the bounds and `outside` beyond them; a lower bound is tested before an upper one."""
    for bound in bounds:
        if bound.greatest is not None:
            tree = Split(bound.feature, bound.greatest, tree, outside)
        if bound.least is not None:
            tree = Split(bound.feature, bound.least - 1, outside, tree)
    return tree
