"""Properties of expressions: what is parsed, evaluated and printed is one and the same function."""

import math

from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import FEATURES, conditions, examples, expressions, points

from treegen.core.expr import MAX_TEXT, evaluate, names, parse, simplified, substitute, to_python, to_text

both = expressions(truths=True) | conditions()


def _by_python(expression, point, *, fast=False):
    text = to_python(expression, fast=fast)
    return int(eval(text, {"__builtins__": {}, "min": min, "max": max}, dict(point)))


@examples(450)
@given(both, points, st.sets(st.sampled_from(FEATURES)))
def test_all_forms_mean_the_same(expression, point, known):
    value, text = evaluate(expression, point), to_text(expression)
    assert type(value) is int
    assert len(text) > MAX_TEXT or parse(text) == expression
    if "next_power_of_2" not in text:  # all else means in Python what it means here
        assert eval(text, {"__builtins__": {}, "min": min, "max": max}, dict(point)) == value
    for fast in (False, True):
        assert _by_python(expression, point, fast=fast) == value
    simple = simplified(expression)
    rest = substitute(expression, {name: point[name] for name in known})
    assert names(simple) <= names(expression) and names(rest) <= names(expression) - known
    for other in (simple, rest):
        assert evaluate(other, point) == _by_python(other, point) == value


def test_printing_keeps_parentheses_only_where_they_matter_and_simplifying_drops_neutral_numbers():
    kept = ["a <= b or not (b > 1 or c == 2) and a != 3", "(a <= b) == (b <= c)", "not a + 1 <= b"]
    kept += ["(a + b) * c", "a - (b - c)", "a - b - 1", "a * (b // 3)", "a * b // 3", "max(a, b) + 2"]
    texts = {**{text: text for text in kept}, "((a)) + (b * c)": "a + b * c", "a - (-3)": "a - (-3)"}
    texts |= {"a + 1048576": "a + 1_048_576", "-a": "0 - a", "---a": "0 - a", "--a": "a", " a ": "a"}
    assert {text: to_text(parse(text)) for text in texts} == texts
    texts = {"1 * a + 0 * b": "a", "a + 5 - 7": "a - 2", "0 + a - 0": "a", "4 * 8 <= a": "32 <= a"}
    assert {text: to_text(simplified(parse(text))) for text in texts} == texts
    powers = {-5: 1, 0: 1, 1: 1, 2: 2, 3: 4, 4: 4, 5: 8, 1023: 1024, 1025: 2048}
    assert {n: evaluate(parse("next_power_of_2(n)"), {"n": n}) for n in powers} == powers


@examples(100)
@given(st.integers(-1000, 1000), st.integers(1, 100))
def test_tiles_and_remainders(length, block):
    for divisor in (str(block), f"max(1, {block})"):
        tiles, rest = parse(f"ceil_div(m, {divisor})"), parse(f"m % {divisor}")
        assert evaluate(tiles, {"m": length}) == math.ceil(length / block)
        assert evaluate(rest, {"m": length}) == length % block
    assert to_text(parse("ceil_div(m, 128)")) == to_text(parse("(m + 127) // 128")) == "ceil_div(m, 128)"
