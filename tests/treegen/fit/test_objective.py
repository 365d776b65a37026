"""What fitting minimises the sum of."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import problem
from treegen_strategies import examples

from treegen.core.problem import FORBIDDEN, GREATEST_WEIGHT, UNIT, UNTIMED, UNTIMED_PENALTY, Problem
from treegen.core.table import Cells
from treegen.fit.costs import FAILED, losses

SLOWEST = round(math.log(1e15) * UNIT)
"""A table holds times from a thousandth of a microsecond to 10^12."""
TWICE = round(math.log(2) * UNIT)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return problem(tmp_path_factory.mktemp("problem"))


def _losses(
    made: Problem, cost: object, weight: object = None, cells: Cells = Cells.MEASURED
) -> npt.NDArray[np.int64]:
    """The losses of any cost [scenarios, configs]."""
    costs = np.array(cost, dtype=np.int64)
    weights = np.ones(len(costs), dtype=np.int64) if weight is None else np.array(weight, dtype=np.int64)
    table = dataclasses.replace(made.table, cells=cells)
    return losses(dataclasses.replace(made, table=table, cost=costs, weight=weights))


def test_by_default_the_cost_and_twice_the_best_where_nothing_was_timed(made: Problem) -> None:
    cost = [[0, 1, 5_000_000], [UNTIMED, 0, FORBIDDEN]]
    assert _losses(made, cost).tolist() == [[0, 1, 5_000_000], [UNTIMED_PENALTY, 0, FAILED]]
    assert UNTIMED_PENALTY == TWICE


def test_the_mean_loss_is_the_log_of_the_weighted_geometric_mean(made: Problem) -> None:
    weight, slowdown = [5, 1, 14], [1.25, 3.0, 1.01]
    cost = [[round(math.log(s) * UNIT), 0] for s in slowdown]
    found = math.exp(_losses(made, cost, weight)[:, 0].mean() / UNIT)
    expected = math.prod(s**w for s, w in zip(slowdown, weight, strict=True)) ** (1 / sum(weight))
    assert found == pytest.approx(expected, abs=1e-5)


def test_misses_of_a_table_of_winners_are_alike(made: Problem) -> None:
    cost = [[0, UNIT, FORBIDDEN], [UNIT, 0, UNIT]]
    found = _losses(made, cost, [1, 3], Cells.WINNERS)
    assert found.tolist() == [[0, UNIT // 2, FAILED], [3 * UNIT // 2, 0, 3 * UNIT // 2]]


cells = st.one_of(
    st.integers(0, 3 * UNIT), st.integers(0, SLOWEST), st.sampled_from([0, 1, SLOWEST, UNTIMED, FORBIDDEN])
)
tables = st.lists(st.tuples(st.integers(1, GREATEST_WEIGHT), cells, cells), min_size=1, max_size=8)


@examples(200)
@given(tables)
def test_every_cell_is_what_the_formula_says(made: Problem, table: list[tuple[int, int, int]]) -> None:
    weight = [row[0] for row in table]
    found = _losses(made, [row[1:] for row in table], weight)
    for row, scenario in zip(found.tolist(), table, strict=True):
        for loss, cost in zip(row, scenario[1:], strict=True):
            if cost == FORBIDDEN:
                assert loss == FAILED
                continue
            c = math.log(2) if cost == UNTIMED else cost / UNIT
            weighted = c * scenario[0] * len(table) / sum(weight)
            assert 0 <= loss < FAILED
            assert loss == pytest.approx(min(weighted * UNIT, FAILED - 1), rel=1e-5, abs=len(table) + 1)


def test_sums_over_many_scenarios_are_exact() -> None:
    scenarios = 1 << 17
    assert (FAILED - 1) * scenarios < 1 << 53 and FAILED * scenarios < 1 << 63
