"""What fitting minimises the sum of."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import problem
from treegen_strategies import examples

from treegen.core.problem import FORBIDDEN, GREATEST_WEIGHT, UNIT, UNTIMED, UNTIMED_PENALTY, Problem
from treegen.core.spec import Objective
from treegen.core.table import Cells
from treegen.fit.costs import FAILED, losses

SLOWEST = round(math.log(1e15) * UNIT)
"""A table holds times from a thousandth of a microsecond to 10^12."""
TWICE = round(math.log(2) * UNIT)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return problem(tmp_path_factory.mktemp("problem"))


def _losses(
    made: Problem, cost: object, weight: object = None, cells: Cells = Cells.MEASURED, **words: float
) -> npt.NDArray[np.int64]:
    """The losses of any cost [scenarios, configs]; `words` are the objective's."""
    costs = np.array(cost, dtype=np.int64)
    weights = np.ones(len(costs), dtype=np.int64) if weight is None else np.array(weight, dtype=np.int64)
    kernel = dataclasses.replace(made.kernel, objective=Objective(**words))
    table = dataclasses.replace(made.table, cells=cells)
    return losses(dataclasses.replace(made, kernel=kernel, table=table, cost=costs, weight=weights))


def test_by_default_the_cost_and_twice_the_best_where_nothing_was_timed(made: Problem) -> None:
    cost = [[0, 1, 5_000_000], [UNTIMED, 0, FORBIDDEN]]
    assert _losses(made, cost).tolist() == [[0, 1, 5_000_000], [UNTIMED_PENALTY, 0, FAILED]]
    assert UNTIMED_PENALTY == TWICE


def test_worst_case_adds_to_twice_the_best_what_it_says(made: Problem) -> None:
    cost = [[0, TWICE, 2 * TWICE, 4 * TWICE]]
    expected = [0, 1.5, 2 * (1 + 2 * 0.5), 4 * (1 + 4 * 0.5)]  # logarithms to base 2
    found = _losses(made, cost, worst_case=0.5)[0] / TWICE
    assert found == pytest.approx(expected, abs=1e-5)


def test_untimed_bends_like_a_time(made: Problem) -> None:
    cost = [[UNTIMED, round(math.log(5) * UNIT), 0]]
    found = _losses(made, cost, untimed=5, worst_case=3)
    assert found[0, 0] == found[0, 1] > 3 * _losses(made, cost, untimed=5)[0, 1]


def test_a_scenario_counts_by_its_share_of_the_weight(made: Problem) -> None:
    cost = [[0, 1000, UNTIMED], [0, 1000, UNTIMED]]
    assert _losses(made, cost, [1, 3]).tolist() == [
        [0, 500, round(UNTIMED_PENALTY / 2)],
        [0, 1500, UNTIMED_PENALTY * 3 // 2],
    ]


def test_the_mean_loss_is_the_log_of_the_weighted_geometric_mean(made: Problem) -> None:
    weight, slowdown = [5, 1, 14], [1.25, 3.0, 1.01]
    cost = [[round(math.log(s) * UNIT), 0] for s in slowdown]
    found = math.exp(_losses(made, cost, weight)[:, 0].mean() / UNIT)
    expected = math.prod(s**w for s, w in zip(slowdown, weight, strict=True)) ** (1 / sum(weight))
    assert found == pytest.approx(expected, abs=1e-5)


def test_what_failed_loses_the_same_however_light_the_scenario(made: Problem) -> None:
    cost = [[FORBIDDEN, 0], [0, FORBIDDEN]]
    assert _losses(made, cost, [1, GREATEST_WEIGHT], worst_case=1).tolist() == [[FAILED, 0], [0, FAILED]]


def test_misses_of_a_table_of_winners_are_alike(made: Problem) -> None:
    cost = [[0, UNIT, FORBIDDEN], [UNIT, 0, UNIT]]
    found = _losses(made, cost, [1, 3], Cells.WINNERS, worst_case=7, untimed=50)
    assert found.tolist() == [[0, UNIT // 2, FAILED], [3 * UNIT // 2, 0, 3 * UNIT // 2]]


cells = st.one_of(
    st.integers(0, 3 * UNIT), st.integers(0, SLOWEST), st.sampled_from([0, 1, SLOWEST, UNTIMED, FORBIDDEN])
)
tables = st.lists(st.tuples(st.integers(1, GREATEST_WEIGHT), cells, cells), min_size=1, max_size=8)
worst_cases, untimed = st.floats(0, 100), st.floats(1, 100, exclude_min=True)


@examples(200)
@given(tables, worst_cases, untimed)
def test_every_cell_is_what_the_formula_says(
    made: Problem, table: list[tuple[int, int, int]], worst_case: float, untimed: float
) -> None:
    weight = [row[0] for row in table]
    found = _losses(made, [row[1:] for row in table], weight, worst_case=worst_case, untimed=untimed)
    for row, scenario in zip(found.tolist(), table, strict=True):
        for loss, cost in zip(row, scenario[1:], strict=True):
            if cost == FORBIDDEN:
                assert loss == FAILED
                continue
            c = math.log(untimed) if cost == UNTIMED else cost / UNIT
            bent = c * (1 + worst_case * c / math.log(2)) * scenario[0] * len(table) / sum(weight)
            assert 0 <= loss < FAILED
            assert loss == pytest.approx(min(bent * UNIT, FAILED - 1), rel=1e-5, abs=len(table) + 1)


@examples(100)
@given(st.lists(st.integers(0, SLOWEST), min_size=2, max_size=9), worst_cases)
def test_slower_loses_more(made: Problem, row: list[int], worst_case: float) -> None:
    found = _losses(made, [[*row, *(cost + 1 for cost in row)]], worst_case=worst_case)[0].tolist()
    order = sorted(zip([*row, *(cost + 1 for cost in row)], found, strict=True))
    for (cost, loss), (slower, more) in pairwise(order):
        assert loss == more if cost == slower else loss < more or loss == FAILED - 1


@examples(100)
@given(tables, worst_cases, st.integers(1, 50))
def test_only_ratios_of_weights_matter(
    made: Problem, table: list[tuple[int, int, int]], worst_case: float, factor: int
) -> None:
    cost, weight = [row[1:] for row in table], [min(row[0], GREATEST_WEIGHT // factor) for row in table]
    scaled = [one * factor for one in weight]
    assert np.array_equal(
        _losses(made, cost, weight, worst_case=worst_case),
        _losses(made, cost, scaled, worst_case=worst_case),
    )


def test_equal_weights_change_nothing(made: Problem) -> None:
    cost = np.arange(600).reshape(300, 2) * 7919
    for weight in (3, 7, GREATEST_WEIGHT):
        assert np.array_equal(_losses(made, cost, [weight] * 300), cost)


def test_a_scenario_loses_the_same_in_a_table_of_any_length(made: Problem) -> None:
    rng = np.random.default_rng(0)
    cost = rng.choice([0, 5, 10_000, TWICE, SLOWEST, UNTIMED, FORBIDDEN], size=(700, 3))
    found = _losses(made, cost, worst_case=0.3)
    singly = [_losses(made, cost[[row]], worst_case=0.3) for row in range(len(cost))]
    assert np.array_equal(found, np.concatenate(singly))


def test_sums_over_many_scenarios_are_exact() -> None:
    scenarios = 1 << 17
    assert (FAILED - 1) * scenarios < 1 << 53 and FAILED * scenarios < 1 << 63


def test_what_failed_outweighs_thousands_of_bad_choices_but_no_loss_does(made: Problem) -> None:
    assert FAILED > 50_000 * UNTIMED_PENALTY
    cost = [[SLOWEST, FORBIDDEN], *[[UNTIMED, 0]] * 1000]
    found = _losses(made, cost, [GREATEST_WEIGHT, *[1] * 1000], worst_case=100, untimed=100)
    assert found[0].tolist() == [FAILED - 1, FAILED]


def test_the_costs_are_left_alone(made: Problem) -> None:
    cost = np.array([[0, UNTIMED, FORBIDDEN]])
    one = dataclasses.replace(made, cost=cost, weight=np.array([2]))
    losses(one)
    assert cost.tolist() == [[0, UNTIMED, FORBIDDEN]]


def test_some_rows_of_a_problem_keep_their_weights(tmp_path: Path) -> None:
    made = problem(tmp_path, {"objective": {"weight": "rows"}}, shapes=[(1, 8, 2), (3, 8, 2), (9, 8, 2)])
    heavy = made.rows(np.array([2, 1]))
    assert heavy.weight.tolist() == heavy.column("rows").tolist() == [9, 3]
    assert losses(heavy)[:, 2].tolist() == [round(made.cost[2, 2] * 1.5), round(made.cost[1, 2] * 0.5)]
