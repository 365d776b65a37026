"""Interval arithmetic over expressions of the spec (R. E. Moore, Interval Analysis, 1966), by tree region."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from itertools import product

from treegen.core import expr
from treegen.core.spec import KernelSpec
from treegen.core.tree import Region

End = int | float
"""An integer, or minus or plus infinity; never another float."""

Interval = tuple[End, End]
"""All integers from the first end to the second. The interval is empty where the first end is greater."""

ALL: Interval = (-math.inf, math.inf)


def interval(least: int | None, greatest: int | None) -> Interval:
    """The interval from `least` to `greatest`, where None is unbounded."""
    return (-math.inf if least is None else least, math.inf if greatest is None else greatest)


def intersection(one: Interval, other: Interval) -> Interval:
    """The integers that lie in both intervals."""
    return max(one[0], other[0]), min(one[1], other[1])


def is_empty(one: Interval) -> bool:
    return one[0] > one[1]


def enclosure(expression: expr.Expression, box: Mapping[str, Interval]) -> Interval:
    """An interval that holds the expression's value at every integer point of a box without empty intervals.

    The interval is the least one if no name occurs twice in the expression, or if `expr.is_nondecreasing`
    is true of it. Elsewhere it may be wider, because each occurrence of a name varies independently.
    """
    match expression:
        case expr.Number(value):
            return value, value
        case expr.Name(name):
            return box[name]
        case expr.Call(function, arguments):
            return _applied(function, [enclosure(argument, box) for argument in arguments])
    raise AssertionError(expression)


def _applied(function: str, parts: list[Interval]) -> Interval:
    lows, highs = zip(*parts, strict=True)
    match function:
        case "+":
            return _sum(*lows), _sum(*highs)
        case "-":
            return _sum(lows[0], -highs[1]), _sum(highs[0], -lows[1])
        case "*":
            products = [_product(one, other) for one in parts[0] for other in parts[1]]
            return min(products), max(products)
        case "//":  # all divisors of the language are positive
            return (
                _quotient(lows[0], highs[1] if lows[0] >= 0 else lows[1]),
                _quotient(highs[0], lows[1] if highs[0] >= 0 else highs[1]),
            )
        case "%":
            most = _sum(highs[1], -1)
            return 0, min(highs[0], most) if lows[0] >= 0 else most
        case "min":
            return min(lows), min(highs)
        case "max":
            return max(lows), max(highs)
        case "next_power_of_2":
            return _next_power_of_2(lows[0]), _next_power_of_2(highs[0])
        case _:  # a condition
            return 0, 1


def _sum(one: End, other: End) -> End:
    """The sum of two low or two high ends, which are never opposite infinities."""
    if isinstance(one, float):  # infinity + integer would convert the integer, which may exceed every float
        return one
    return other if isinstance(other, float) else one + other


def _product(one: End, other: End) -> End:
    if one == 0 or other == 0:
        return 0  # 0 times infinity: the other factor is unbounded, but always an integer
    if isinstance(one, float) or isinstance(other, float):
        return math.inf if (one > 0) == (other > 0) else -math.inf
    return one * other


def _quotient(dividend: End, divisor: End) -> End:
    if isinstance(dividend, float):
        return dividend
    if isinstance(divisor, float):
        return 0 if dividend >= 0 else -1
    return dividend // divisor


def _next_power_of_2(value: End) -> End:
    if isinstance(value, float):
        return 1 if value < 0 else value
    return expr.next_power_of_2(value)


_MOST_EVALUATIONS = 4096  # of definitions, to find a feature's values; with more, they are enclosed

Definitions = tuple[tuple[str, expr.Expression], ...]


def feature_intervals(region: Region, kernel: KernelSpec, known: Mapping[str, int]) -> dict[str, Interval]:
    """The values of every feature in a region; an empty interval if the region holds no shape.

    A derived feature is narrowed to what its definition gives. It is left out if that needs a limit that is
    not in `known`.
    """
    box = {name: interval(*region.get(name, (None, None))) for name in kernel.features}
    definitions: dict[str, expr.Expression] = {}
    for name, expression in kernel.derived.items():
        definition = expr.substitute(expression, known)
        bounds = interval(*region.get(name, (None, None)))
        if any(map(is_empty, box.values())):
            box[name] = bounds
        elif expr.names(definition) <= box.keys():
            definitions[name] = definition
            parts = expr.with_parts([name], definitions)
            values = enclosure(definition, box)
            if exact := _values(
                tuple((n, d) for n, d in definitions.items() if n in parts),
                tuple((n, box[n]) for n in kernel.features if n in parts),
            ):
                values = intersection(values, exact)
            box[name] = intersection(bounds, values)
    return box


@lru_cache(maxsize=4096)  # leaves that differ in other features ask for the same
def _values(definitions: Definitions, box: tuple[tuple[str, Interval], ...]) -> Interval | None:
    """The least and the greatest value of the last feature in a box; None if it has too many points.

    An enclosure is wider: each occurrence of a name varies independently there, as in `x - x // 64 * 64`.
    """
    if math.prod(last - first + 1 for _, (first, last) in box) * len(definitions) > _MOST_EVALUATIONS:
        return None
    found = []
    for point in product(*(range(int(first), int(last) + 1) for _, (first, last) in box)):
        values = {name: value for (name, _), value in zip(box, point, strict=True)}
        for name, definition in definitions:
            values[name] = expr.evaluate(definition, values)
        found.append(values[definitions[-1][0]])
    return min(found), max(found)
