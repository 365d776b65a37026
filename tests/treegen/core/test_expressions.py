"""Properties of expressions: what is parsed, evaluated and printed is one and the same function."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_strategies import FEATURES, any_integer, examples, expressions, points

from treegen.core.expr import (
    MAX_TEXT,
    Expression,
    ExpressionError,
    Name,
    Number,
    evaluate,
    is_nondecreasing,
    names,
    parse,
    substitute,
    to_python,
    to_text,
)


def _by_python(expression: Expression, point: dict[str, int]) -> int:
    return eval(to_python(expression), {"__builtins__": {}, "min": min, "max": max}, dict(point))


@examples(200)
@given(expressions())
def test_parse_reads_what_to_text_prints(expression: Expression) -> None:
    text = to_text(expression)
    assume(len(text) <= MAX_TEXT)
    assert parse(text) == expression


@examples(300)
@given(expressions(), points)
def test_python_computes_the_same(expression: Expression, point: dict[str, int]) -> None:
    assert _by_python(expression, point) == evaluate(expression, point)


@examples(200)
@given(expressions(), points, st.sets(st.sampled_from(FEATURES)))
def test_substituting_numbers_changes_no_value(
    expression: Expression, point: dict[str, int], known: set[str]
) -> None:
    rest = substitute(expression, {name: point[name] for name in known})
    assert names(rest) <= names(expression) - known
    assert evaluate(rest, point) == evaluate(expression, point)
    assert _by_python(rest, point) == evaluate(expression, point)


@examples(400)
@given(expressions(), points, st.sampled_from(FEATURES), any_integer)
def test_nondecreasing_expressions_never_fall(
    expression: Expression, point: dict[str, int], name: str, other: int
) -> None:
    assume(is_nondecreasing(expression))
    low, high = sorted([point[name], other])
    assert evaluate(expression, {**point, name: low}) <= evaluate(expression, {**point, name: high})


NONDECREASING = ["a", "a + b", "a * 3 - 5", "max(a, 7) // 4", "next_power_of_2(a)", "0 * a", "3 * min(a, 1)"]
OTHERS = ["-a", "5 - a", "a - b", "a * b", "a * -1", "a // max(1, b)", "max(a, 0 - a)", "a * (a // 2)"]


@pytest.mark.parametrize("text", [*NONDECREASING, *OTHERS])
def test_nondecreasing_expressions_are_recognised(text: str) -> None:
    assert is_nondecreasing(parse(text)) == (text in NONDECREASING)


def test_next_power_of_2() -> None:
    expected = {-5: 1, 0: 1, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 1023: 1024, 1025: 2048}
    assert {n: evaluate(parse("next_power_of_2(n)"), {"n": n}) for n in expected} == expected


def test_printing_keeps_parentheses_only_where_they_matter() -> None:
    for text in ["(a + b) * c", "a - (b - c)", "a - b - 1", "a * (b // 3)", "a * b // 3", "max(a, b) + 2"]:
        assert to_text(parse(text)) == text
    assert to_text(parse("((a)) + (b * c)")) == "a + b * c"
    assert to_text(parse("a - (-3)")) == "a - (-3)"
    assert to_text(parse("a + 1048576")) == "a + 1_048_576"
    assert to_text(parse("-a")) == "0 - a"
    assert to_text(parse("---a")) == "0 - a" and to_text(parse("--a")) == "a"
    assert to_text(parse(" a ")) == "a"


def test_python_text_calls_no_function_for_two_numbers() -> None:
    assert to_python(parse("a // max(1, b)")) == "a // (b if b > 1 else 1)"
    assert to_python(parse("min(a, b) * c")) == "(b if b < a else a) * c"
    assert to_python(parse("max(1, b - 1)")) == "max(1, b - 1)"


def test_python_text_of_a_negative_number_has_no_needless_parentheses() -> None:
    assert to_python(Number(-7)) == "-7"


def test_floor_division_of_negative_numbers_is_pythons() -> None:
    assert evaluate(parse("a // 4"), {"a": -1}) == -1 == _by_python(parse("a // 4"), {"a": -1})


def test_names_are_the_free_names() -> None:
    assert names(parse("max(a, b * a) - 3")) == {"a", "b"}
    assert names(Number(3)) == frozenset() and names(Name("a")) == {"a"}


@examples(100)
@given(st.integers(-1000, 1000), st.integers(1, 100))
def test_tiles_and_remainders(length: int, block: int) -> None:
    for divisor in (str(block), f"max(1, {block})"):
        tiles, rest = parse(f"ceil_div(m, {divisor})", ["m"]), parse(f"m % {divisor}", ["m"])
        assert evaluate(tiles, {"m": length}) == math.ceil(length / block)
        assert evaluate(rest, {"m": length}) == length % block
    assert to_text(parse("ceil_div(m, 128)")) == "(m + 127) // 128"


@pytest.mark.parametrize("text", ["m % n", "ceil_div(m, n)", "ceil_div(m, 0)", "m % -1"])
def test_what_may_divide_by_0_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError, match="divides by something that may be 0"):
        parse(text)
