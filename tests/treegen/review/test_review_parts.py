"""Parts of expressions are replaced, and a problem's times are medians."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import CONFIGS, grid, problem, time_rows
from treegen_strategies import FEATURES, examples, expressions, points

from treegen.core import expr


@examples(100)
@given(expressions(), expressions(), st.sampled_from(FEATURES), points)
def test_a_name_replaced_by_its_definition_has_the_same_value(
    expression: expr.Expression, definition: expr.Expression, name: str, values: dict[str, int]
) -> None:
    inlined = expr.replace(expression, {expr.Name(name): definition})
    value = expr.evaluate(definition, values)
    assert expr.evaluate(inlined, values) == expr.evaluate(expression, {**values, name: value})


def test_of_nested_parts_the_largest_is_replaced() -> None:
    inner, outer = expr.parse("rows * 2"), expr.parse("rows * 2 + heads")
    parts = {inner: expr.Name("small"), outer: expr.Name("large")}
    assert expr.replace(expr.parse("max(rows * 2 + heads, rows * 2)"), parts) == expr.parse(
        "max(large, small)"
    )
    assert expr.replace(outer, {}) == outer
    assert expr.replace(expr.parse("7 + 77"), {expr.Number(7): expr.Number(-1)}) == expr.parse("-1 + 77")


def test_times_are_medians_in_the_order_of_the_problem(tmp_path: Path) -> None:
    """The table's rows and columns are in another order; a failed and an empty cell stay what they are."""
    rows = time_rows(grid(), lambda shape: [shape[0], 10 * shape[1], 500 + shape[0]])
    for row in rows[9:]:
        row[2] = row[2] * 3  # of two repeats the median is the mean
    rows[0][3] = "inf"
    rows[1][4] = rows[10][4] = ""
    found = problem(tmp_path, rows=rows, configs=tuple(reversed(CONFIGS)))
    blocks = [dict(config.parameters)["block"] for config in found.configs]
    assert blocks == sorted(blocks)
    times = found.times()
    for row, scenario in enumerate(found.scenarios):
        shape = grid()[int(scenario[1:]) - 1]
        expected = [500 + shape[0], 10 * shape[1], 2 * shape[0]]
        if scenario == "s001":
            expected[1] = math.inf
        if scenario == "s002":
            expected[0] = math.nan
        np.testing.assert_array_equal(times[row], expected)
