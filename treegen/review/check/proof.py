"""Proof that a leaf's config meets a constraint wherever the leaf is reached.

Independent of the pass that put the guards there: that pass solves a constraint for its feature; here the
region of the finished leaf is enclosed by interval arithmetic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from treegen.core import expr
from treegen.core.interval import Interval, enclosure, intersection, interval, is_empty
from treegen.core.problem import holds
from treegen.core.spec import Config, Constraint, DeviceSpec, KernelSpec
from treegen.core.tree import Region
from treegen.review import regions

_TRIES = 4000
_SCALES = tuple(1 << exponent for exponent in range(21))


@dataclass(frozen=True)
class Unproved:
    """counterexample: raw features of a shape in the region at which the constraint is broken, those on which
    region and constraint depend; None if none was found. unknown: names that have no value on the device.
    """

    constraint: Constraint
    counterexample: Mapping[str, int] | None = None
    unknown: tuple[str, ...] = ()


def prove(region: Region, config: Config, kernel: KernelSpec, device: DeviceSpec) -> Iterator[Unproved]:
    """The constraints of the kernel that bind the config and do not provably hold at every integer point of
    the region. Sound: what is not returned holds. Complete where a constraint can be a guard."""
    known = {**device.limits, **dict(config.parameters)}
    box = reach(region, kernel, known)
    if any(map(is_empty, box.values())):
        return
    for constraint in kernel.constraints:
        if not constraint.binds(config):
            continue
        names = expr.names(constraint.left) | expr.names(constraint.right)
        unknown = sorted(names - box.keys() - known.keys())
        if unknown:
            yield Unproved(constraint, unknown=tuple(unknown))
        elif not _surely_holds(constraint, box, known):
            yield Unproved(constraint, _counterexample(region, constraint, kernel, known))


def reach(region: Region, kernel: KernelSpec, known: Mapping[str, int]) -> dict[str, Interval]:
    """Every feature's values in a region; derived features within what their definition gives, too, and left
    out where that takes a limit that is not among `known`. An empty interval: no shape is in the region."""
    box = {name: interval(*region.get(name, (None, None))) for name in kernel.features}
    for name, expression in kernel.derived.items():
        definition = expr.substitute(expression, known)
        bounds = interval(*region.get(name, (None, None)))
        if any(map(is_empty, box.values())):
            box[name] = bounds
        elif expr.names(definition) <= box.keys():
            box[name] = intersection(bounds, enclosure(definition, box))
    return box


def _surely_holds(constraint: Constraint, box: Mapping[str, Interval], known: Mapping[str, int]) -> bool:
    left, right = (
        enclosure(expr.substitute(side, known), box) for side in (constraint.left, constraint.right)
    )
    match constraint.operator:
        case "<=":
            return left[1] <= right[0]
        case ">=":
            return left[0] >= right[1]
        case "<":
            return left[1] < right[0]
    return left[0] > right[1]


def _counterexample(
    region: Region, constraint: Constraint, kernel: KernelSpec, known: Mapping[str, int]
) -> dict[str, int] | None:
    """A shape in the region at which the constraint is broken, by a search that is the same every time."""
    matter = _raw({*region, *expr.names(constraint.left), *expr.names(constraint.right)}, kernel)
    choices = {name: _candidates(*region.get(name, (None, None))) for name in matter}

    def breaks(point: Mapping[str, int]) -> bool:
        values = {**known, **dict.fromkeys(kernel.features, 1), **point}
        for name, expression in kernel.derived.items():
            if expr.names(expression) <= values.keys():
                values[name] = expr.evaluate(expression, values)
        inside = region.keys() <= values.keys() and regions.holds(region, values)
        return inside and not holds(constraint, values)

    draw = random.Random(0).random
    for _ in range(_TRIES):
        point = {name: values[int(draw() * len(values))] for name, values in choices.items()}
        if breaks(point):
            return _simplest(point, choices, breaks)
    return None


def _simplest(
    point: Mapping[str, int],
    choices: Mapping[str, list[int]],
    breaks: Callable[[Mapping[str, int]], bool],
) -> dict[str, int]:
    """The same point with every coordinate as early among its choices as it can be, given the others."""
    result: dict[str, int] = {}
    after = dict(point)
    while after != result:  # a coordinate never moves back
        result = dict(after)
        for name, values in choices.items():
            after[name] = next(value for value in values if breaks({**after, name: value}))
    return result


def _raw(names: set[str], kernel: KernelSpec) -> list[str]:
    """The raw features on which these names depend, in the spec's order."""
    for name, expression in reversed(list(kernel.derived.items())):
        if name in names:
            names = names | expr.names(expression)
    return [name for name in kernel.features if name in names]


def _candidates(least: int | None, greatest: int | None) -> list[int]:
    """Values to try within bounds, the simplest first: usual sizes, the ends and what is beside them."""
    ends = [end + step for end in (least, greatest) if end is not None for step in (0, 1, -1)]
    found = dict.fromkeys([*_SCALES, *ends, 0, -1])
    return [v for v in found if (least is None or least <= v) and (greatest is None or v <= greatest)]
