"""Interval arithmetic against brute force: it encloses every value, and tightly where it promises to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import FEATURES, any_integer, examples, expressions

from treegen.core.expr import Expression, evaluate, is_nondecreasing, parse
from treegen.core.interval import Interval, enclosure, intersection, interval, is_empty

small = st.tuples(st.integers(-9, 9), st.integers(0, 4)).map(lambda pair: (pair[0], pair[0] + pair[1]))
small_boxes = st.fixed_dictionaries(dict.fromkeys(FEATURES, small))
ends = st.one_of(st.none(), any_integer)


def values(expression: Expression, box: Mapping[str, tuple[int, int]]) -> list[int]:
    """The expression at every point of the box."""
    axes = [range(low, high + 1) for low, high in box.values()]
    return [evaluate(expression, dict(zip(box, point, strict=True))) for point in product(*axes)]


@examples(300)
@given(expressions(), small_boxes)
def test_every_value_in_a_small_box_is_enclosed(
    expression: Expression, box: dict[str, tuple[int, int]]
) -> None:
    low, high = enclosure(expression, box)
    found = values(expression, box)
    assert low <= min(found)
    assert max(found) <= high


@examples(300)
@given(expressions(), small_boxes)
def test_a_nondecreasing_expression_is_enclosed_tightly(
    expression: Expression, box: dict[str, tuple[int, int]]
) -> None:
    if is_nondecreasing(expression):
        found = values(expression, box)
        assert enclosure(expression, box) == (min(found), max(found))


OPERATIONS = ["rows + columns", "rows - columns", "rows * columns", "rows // max(1, columns)"]


@examples(600)
@given(st.sampled_from(OPERATIONS), small, small)
def test_an_operation_on_two_names_is_enclosed_tightly(
    text: str, one: tuple[int, int], other: tuple[int, int]
) -> None:
    box = {"rows": one, "columns": other}
    found = values(parse(text), box)
    assert enclosure(parse(text), box) == (min(found), max(found))


@examples(300)
@given(expressions(), st.fixed_dictionaries(dict.fromkeys(FEATURES, st.tuples(ends, ends))), st.data())
def test_no_point_of_a_box_without_ends_escapes(
    expression: Expression, bounds: dict[str, tuple[int | None, int | None]], data: st.DataObject
) -> None:
    bounds = {
        name: (low, high) if low is None or high is None or low <= high else (high, low)
        for name, (low, high) in bounds.items()
    }
    point = {name: data.draw(st.integers(low, high)) for name, (low, high) in bounds.items()}
    low, high = enclosure(expression, {name: interval(*ends) for name, ends in bounds.items()})
    assert low <= evaluate(expression, point) <= high


@pytest.mark.parametrize(
    ("text", "box", "expected"),
    [
        ("rows * columns", {"rows": (0, math.inf), "columns": (-math.inf, 3)}, (-math.inf, math.inf)),
        ("rows * 0", {"rows": (-math.inf, math.inf)}, (0, 0)),
        ("rows * columns", {"rows": (2, math.inf), "columns": (3, math.inf)}, (6, math.inf)),
        ("rows - columns", {"rows": (1, math.inf), "columns": (-math.inf, 4)}, (-3, math.inf)),
        ("rows // max(1, columns)", {"rows": (-5, 9), "columns": (2, math.inf)}, (-3, 4)),
        ("rows // max(1, columns)", {"rows": (-5, -2), "columns": (2, math.inf)}, (-3, -1)),
        ("rows // max(1, columns)", {"rows": (6, math.inf), "columns": (0, 3)}, (2, math.inf)),
        ("next_power_of_2(rows)", {"rows": (-math.inf, 5)}, (1, 8)),
        ("next_power_of_2(rows)", {"rows": (65, math.inf)}, (128, math.inf)),
        ("rows + 1", {"rows": (10**400, math.inf)}, (10**400 + 1, math.inf)),
    ],
)
def test_infinite_ends(text: str, box: dict[str, Interval], expected: Interval) -> None:
    assert enclosure(parse(text), box) == expected


def test_intersections() -> None:
    assert intersection((1, math.inf), (-math.inf, 4)) == (1, 4)
    assert is_empty(intersection((1, 2), (3, 4)))
    assert not is_empty((3, 3))
