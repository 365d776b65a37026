"""What reviews ask of trees, expressions and problems."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import CONFIGS, grid, problem, time_rows
from treegen_strategies import CONFIGS as LAUNCHES
from treegen_strategies import FEATURES, any_integer, examples, expressions, points

from treegen.core import expr
from treegen.core.tree import Leaf, Split, split_features


def test_asked_names_every_split_the_root_first() -> None:
    leaf = Leaf(LAUNCHES[0])
    tree = Split(
        "rows", 1, Split("heads", 2, leaf, leaf), Split("rows", 3, leaf, Split("columns", 4, leaf, leaf))
    )
    assert list(split_features(tree)) == ["rows", "heads", "rows", "columns"]
    assert list(split_features(leaf)) == []


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


@examples(30)
@given(any_integer)
def test_numbers_are_replaced_as_wholes(value: int) -> None:
    parts = {expr.Number(7): expr.Number(value)}
    assert expr.replace(expr.parse("7 + 77"), parts) == expr.Call("+", (expr.Number(value), expr.Number(77)))


def test_times_are_medians_in_the_order_of_the_problem(tmp_path: Path) -> None:
    """The table's rows and columns are in another order; a failed and an empty cell stay what they are."""
    rows = time_rows(grid(), lambda shape: [shape[0], 10 * shape[1], 500 + shape[0]])
    for row in rows[9:]:
        row[2] = row[2] * 3  # of two repeats the median is the mean
    rows[0][3] = "inf"
    rows[1][4] = rows[10][4] = ""
    posed = problem(tmp_path, rows=rows, configs=tuple(reversed(CONFIGS)))
    blocks = [dict(config.parameters)["block"] for config in posed.configs]
    assert blocks == sorted(blocks)
    times = posed.times()
    for row, scenario in enumerate(posed.scenarios):
        shape = grid()[int(scenario[1:]) - 1]
        wanted = [500 + shape[0], 10 * shape[1], 2 * shape[0]]
        if scenario == "s001":
            wanted[1] = math.inf
        if scenario == "s002":
            wanted[0] = math.nan
        np.testing.assert_array_equal(times[row], wanted)
