"""The bounds on one feature within which a config meets the constraints of a spec."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from treegen.core import expr
from treegen.core.errors import InputError
from treegen.core.problem import Problem, holds
from treegen.core.spec import Config, Constraint, DeviceSpec, KernelSpec
from treegen.core.tree import Region, cut

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


def refuse_unprovable(problem: Problem, spec: Path) -> None:
    """Raise InputError, which names the line of the spec, if no bounds express a constraint for a config."""
    try:
        for config in problem.configs:
            bounds_of(config, problem.kernel, problem.device)
    except UnprovableConstraint as error:
        raise InputError(spec, str(error), line=error.line) from None


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

    return _bound_on(feature, left, right, "=" in constraint.operator, rising)


@lru_cache(maxsize=4096)  # many configs share a bound, and every fit asks for the same ones
def _bound_on(
    feature: str, left: expr.Expression, right: expr.Expression, or_equal: bool, rising: bool
) -> Bound | None:
    """The values of the one feature of two expressions for which left is less than right, or equal."""

    def meets(value: int) -> bool:
        lesser, greater = (expr.evaluate(side, {feature: value}) for side in (left, right))
        return lesser < greater or (or_equal and lesser == greater)

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


def strictest(bounds: Iterable[Bound]) -> list[Bound]:
    """One bound per feature, the intersection of its bounds, in order of first appearance."""
    result: dict[str, Bound] = {}
    for bound in bounds:
        have = result.get(bound.feature, Bound(bound.feature, None, None))
        least = max((b for b in (have.least, bound.least) if b is not None), default=None)
        greatest = min((b for b in (have.greatest, bound.greatest) if b is not None), default=None)
        result[bound.feature] = Bound(bound.feature, least, greatest)
    return list(result.values())


def implies(region: Region, bound: Bound) -> bool:
    """Return whether a bound holds everywhere in a region."""
    least, greatest = region.get(bound.feature, (None, None))
    above = bound.least is None or (least is not None and least >= bound.least)
    return above and (bound.greatest is None or (greatest is not None and greatest <= bound.greatest))


def excludes(region: Region, bound: Bound) -> bool:
    """Return whether a bound holds nowhere in a region."""
    least, greatest = region.get(bound.feature, (None, None))
    below = bound.least is not None and greatest is not None and greatest < bound.least
    return below or (bound.greatest is not None and least is not None and least > bound.greatest)


def divided(region: Region, bound: Bound) -> tuple[Region | None, Region, Region | None]:
    """The parts of a region below, within and above a bound; None for an end that the bound does not have."""
    below = above = None
    if bound.least is not None:
        below, region = cut(region, bound.feature, bound.least - 1)
    if bound.greatest is not None:
        region, above = cut(region, bound.feature, bound.greatest)
    return below, region, above
