"""grow: best-first, within the budget, exact where a table can be told apart."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_builders import CONFIGS, Cell, Row, problem
from treegen_strategies import examples

from treegen.fit.apply import costs
from treegen.fit.grow import grow
from treegen.problem import FORBIDDEN, UNIT, Problem
from treegen.spec import Budget
from treegen.tree import Leaf, Split, Tree, choose, depth, size

ENOUGH = Budget(max_depth=8, max_leaves=16)
FREE = {"constraints": [], "derived": {}}


def _problem(folder: Path, times: dict[Row, tuple[Cell, ...]]) -> Problem:
    return problem(folder, FREE, shapes=list(times), times=lambda shape: times[shape])


def _least_cost(posed: Problem, rows: np.ndarray, leaves: int, depth: int) -> int:
    """The cost of the best tree of so many leaves and so deep, by trying all of them."""
    best = int(posed.cost[rows].sum(axis=0).min())
    if leaves < 2 or depth < 1:
        return best
    for name in posed.split_on:
        column = posed.column(name)[rows]
        for threshold in sorted(set(column.tolist()))[:-1]:
            low, high = rows[column <= threshold], rows[column > threshold]
            for share in range(1, leaves):
                sides = _least_cost(posed, low, share, depth - 1) + _least_cost(
                    posed, high, leaves - share, depth - 1
                )
                best = min(best, sides)
    return best


slowdowns = st.sampled_from([10.0, 11.0, 14.0, 20.0])
tables = st.dictionaries(
    st.tuples(st.integers(1, 4), st.integers(1, 4), st.just(2)),
    st.tuples(slowdowns, slowdowns, slowdowns),
    min_size=2,
    max_size=6,
)
budgets = st.builds(Budget, st.integers(1, 4), st.integers(1, 5))


@examples(40)
@given(tables, budgets)
def test_within_the_budget_costs_never_rise_and_no_figure_is_too_good(
    tmp_path_factory: pytest.TempPathFactory, times: dict[Row, tuple[Cell, ...]], budget: Budget
) -> None:
    posed = _problem(tmp_path_factory.mktemp("t"), times)
    trees = grow(posed, budget)
    assert [size(tree) for tree in trees] == list(range(1, len(trees) + 1))
    assert len(trees) <= budget.max_leaves and max(map(depth, trees)) <= budget.max_depth
    totals = [int(costs(tree, posed).sum()) for tree in trees]
    assert all(later <= earlier for earlier, later in itertools.pairwise(totals))
    everything = np.arange(len(posed.cost))
    for tree, total in zip(trees, totals, strict=True):
        assert total >= _least_cost(posed, everything, size(tree), budget.max_depth)


@examples(40)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=8))
def test_a_table_of_one_feature_is_told_apart_completely(
    tmp_path_factory: pytest.TempPathFactory, winners: list[int]
) -> None:
    times = {
        (i + 1, 5, 2): tuple(10.0 if c == winner else 20.0 for c in range(3))
        for i, winner in enumerate(winners)
    }
    posed = _problem(tmp_path_factory.mktemp("t"), times)
    assert costs(grow(posed, ENOUGH)[-1], posed).sum() == 0


@examples(40)
@given(st.integers(1, 7), st.integers(0, 1), st.lists(st.integers(1, 50), min_size=8, max_size=8))
def test_a_planted_threshold_is_found_whatever_else_varies(
    tmp_path_factory: pytest.TempPathFactory, cut: int, feature: int, noise: list[int]
) -> None:
    assume(all(len({n <= v for n in noise[:cut]} | {n <= v for n in noise[cut:]}) == 2 for v in (10, 25)))
    shapes: list[Row] = []
    for i, other in enumerate(noise):
        pair = ((i + 1) ** 2, other) if feature == 0 else (other, (i + 1) ** 2)
        shapes.append((*pair, 2))
    times = {shape: ((10.0, 15.0, 20.0) if i < cut else (20.0, 15.0, 10.0)) for i, shape in enumerate(shapes)}
    assume(len(times) == 8)
    posed = _problem(tmp_path_factory.mktemp("t"), times)
    tree = grow(posed, ENOUGH)[1]
    perfect = [v for v in set(noise) if len({(n <= v) == (i < cut) for i, n in enumerate(noise)}) == 1]
    assume(not perfect)
    name = ("rows", "columns")[feature]
    assert tree == Split(
        name, cut**2, Leaf(posed.configs[0]), Leaf(posed.configs[2]), (cut**2, (cut + 1) ** 2)
    )


@examples(40)
@given(
    st.lists(
        st.lists(st.sampled_from(["inf", 10.0, 12.0, ""]), min_size=3, max_size=3), min_size=2, max_size=8
    )
)
def test_what_failed_is_not_chosen_where_the_budget_allows(
    tmp_path_factory: pytest.TempPathFactory, cells: list[list[Cell]]
) -> None:
    assume(all(any(isinstance(cell, float) for cell in row) for row in cells))
    times = {(i + 1, 5, 2): tuple(row) for i, row in enumerate(cells)}
    posed = _problem(tmp_path_factory.mktemp("t"), times)
    assert costs(grow(posed, ENOUGH)[-1], posed).max() < FORBIDDEN


def test_one_config_that_always_runs_beats_faster_ones_that_fail(tmp_path: Path) -> None:
    times: dict[Row, tuple[Cell, ...]] = {(i, 5, 2): (1.0, 900.0, 2.0) for i in range(1, 6)}
    times[(3, 5, 2)] = ("inf", 900.0, "inf")
    posed = _problem(tmp_path, times)
    assert grow(posed, Budget(1, 1)) == [Leaf(posed.configs[1])]


def test_the_leaf_that_loses_most_is_split_first(tmp_path: Path) -> None:
    for heavy, light in ((1, 100), (100, 1)):
        times: dict[Row, tuple[Cell, ...]] = {
            (heavy, 1, 2): (10.0, 90.0, 900.0),
            (heavy, 9, 2): (90.0, 10.0, 900.0),
            (light, 1, 2): (900.0, 12.0, 10.0),
            (light, 9, 2): (900.0, 10.0, 12.0),
        }
        posed = _problem(tmp_path / str(heavy), times)
        much, little = round(math.log(9) * UNIT), round(math.log(1.2) * UNIT)
        totals = [int(costs(tree, posed).sum()) for tree in grow(posed, ENOUGH)]
        assert totals[1:] == [much + little, little, 0]


def test_between_equals_a_leaf_takes_the_config_that_is_best_overall(tmp_path: Path) -> None:
    times: dict[Row, tuple[Cell, ...]] = {
        (1, 1, 2): (10.0, 10.0, 90.0),
        (50, 1, 2): (90.0, 10.0, 20.0),
        (99, 1, 2): (90.0, 20.0, 10.0),
    }
    posed = _problem(tmp_path, times)
    tree = grow(posed, ENOUGH)[-1]
    assert [
        dict(choose(tree, {"rows": r, "columns": 1, "heads": 2}).parameters)["block"] for r in (1, 50, 99)
    ] == [
        64,
        64,
        128,
    ]


def test_equal_shapes_share_a_config(tmp_path: Path) -> None:
    times = iter([[10, 20, 20], [20, 10, 20], [10, 20, 20]] * 2)
    posed = problem(tmp_path, FREE, shapes=[(1, 1, 2)] * 3, times=lambda shape: next(times))
    assert grow(posed, ENOUGH) == [Leaf(posed.configs[0])]


def test_equal_gains_prefer_the_wider_gap_and_then_the_feature_named_first(tmp_path: Path) -> None:
    times = {(1, 2, 2): (10.0, 20.0, 20.0), (100, 3, 2): (20.0, 10.0, 20.0)}
    assert _split(_problem(tmp_path / "a", times)).feature == "rows"
    times = {(2, 1, 2): (10.0, 20.0, 20.0), (3, 100, 2): (20.0, 10.0, 20.0)}
    assert _split(_problem(tmp_path / "b", times)).feature == "columns"
    times = {(2, 2, 2): (10.0, 20.0, 20.0), (3, 3, 2): (20.0, 10.0, 20.0)}
    assert _split(_problem(tmp_path / "c", times)).feature == "rows"
    posed = problem(
        tmp_path / "d",
        {**FREE, "split_on": ["columns", "rows"]},
        shapes=list(times),
        times=lambda s: times[s],
    )
    assert _split(posed).feature == "columns"


def _split(posed: Problem) -> Split:
    tree = grow(posed, ENOUGH)[1]
    assert isinstance(tree, Split)
    return tree


@pytest.mark.xfail(strict=True, reason="known limit: no single split of an exact checkerboard gains anything")
def test_a_checkerboard_is_told_apart(tmp_path: Path) -> None:
    times = {(r, c, 2): (10.0, 20.0, 30.0) if r == c else (20.0, 10.0, 30.0) for r in (1, 2) for c in (1, 2)}
    posed = _problem(tmp_path, times)
    assert costs(grow(posed, ENOUGH)[-1], posed).sum() == 0


@examples(40)
@given(tables)
def test_costs_are_those_of_what_choose_gives(
    tmp_path_factory: pytest.TempPathFactory, times: dict[Row, tuple[Cell, ...]]
) -> None:
    posed = _problem(tmp_path_factory.mktemp("t"), times)
    tree: Tree = grow(posed, ENOUGH)[-1]
    for i, lost in enumerate(costs(tree, posed).tolist()):
        point = {name: int(posed.column(name)[i]) for name in posed.names}
        assert lost == posed.cost[i, posed.configs.index(choose(tree, point))]


def test_the_configs_are_the_specs(tmp_path: Path) -> None:
    posed = problem(tmp_path, FREE)
    assert [dict(config.parameters)["block"] for config in posed.configs] == [c["block"] for c in CONFIGS]
