"""What fitting minimises the sum of."""

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import problem
from treegen_strategies import examples

from treegen.core.problem import FORBIDDEN, GREATEST_WEIGHT, UNIT, UNTIMED, Problem
from treegen.fit.costs import FAILED, losses

SLOWEST = round(math.log(1e15) * UNIT)
"""A table holds times from a thousandth of a microsecond to 10^12."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return problem(tmp_path_factory.mktemp("problem"))


def _losses(made: Problem, cost: object, weight: object) -> npt.NDArray[np.int64]:
    """The losses of any cost [scenarios, configs]."""
    costs, weights = np.array(cost, dtype=np.int64), np.array(weight, dtype=np.int64)
    return losses(dataclasses.replace(made, cost=costs, weight=weights))


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
