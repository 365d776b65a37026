"""Interval arithmetic (R. E. Moore, Interval Analysis, 1966) over the expressions of the spec."""

from __future__ import annotations

import math
from collections.abc import Mapping

from treegen.core import expr

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
    raise AssertionError(function)


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
