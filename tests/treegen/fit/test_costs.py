"""What fitting minimises the sum of, the noise of a table, and what is more than noise."""

import dataclasses
import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from treegen_builders import NARROW, WIDE, problem, write_table
from treegen_strategies import examples

from treegen.core.problem import FORBIDDEN, GREATEST_WEIGHT, UNIT, UNTIMED
from treegen.fit.costs import FAILED, Evidence, losses, table_noise
from treegen.fit.regime import Z_SMALL
from treegen.read.problem import read_table

SLOWEST = round(math.log(1e15) * UNIT)
"""A table holds times from a thousandth of a microsecond to 10^12."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return problem(tmp_path_factory.mktemp("problem"))


cells = st.one_of(
    st.integers(0, 3 * UNIT), st.integers(0, SLOWEST), st.sampled_from([0, 1, SLOWEST, UNTIMED, FORBIDDEN])
)
tables = st.lists(st.tuples(st.integers(1, GREATEST_WEIGHT), cells, cells), min_size=1, max_size=8)


@examples(200)
@given(tables)
def test_every_cell_is_what_the_formula_says(made, table):
    numbers = np.array(table, dtype=np.int64)
    weight = numbers[:, 0]
    found = losses(dataclasses.replace(made, cost=numbers[:, 1:], weight=weight))
    assert (FAILED - 1) << 17 < 1 << 53 and FAILED << 17 < 1 << 63  # so that sums of a table are exact
    for row, scenario in zip(found.tolist(), table, strict=True):
        for loss, cost in zip(row, scenario[1:], strict=True):
            if cost == FORBIDDEN:
                assert loss == FAILED
                continue
            c = math.log(2) if cost == UNTIMED else cost / UNIT
            weighted = c * scenario[0] * len(table) / sum(weight.tolist())
            assert 0 <= loss < FAILED
            assert loss == pytest.approx(min(weighted * UNIT, FAILED - 1), rel=1e-5, abs=len(table) + 1)


LINE = [(i + 1, 5, 2) for i in range(150)]


def _gauss(rng):
    return round(50 * math.exp(rng.gauss(0, 0.02)), 9)


def _wild(rng):
    kind, time = rng.random(), float(_gauss(rng))
    return "inf" if kind < 0.05 else "" if kind < 0.1 else round(9 * time, 9) if kind < 0.15 else time


def _noise(folder, rows):
    return table_noise(read_table(write_table(folder, shapes=LINE, rows=rows, configs=(NARROW, WIDE))))


@pytest.mark.parametrize(("cell", "repeats", "spread", "within"), [
    (_gauss, 2, math.sqrt(1 / 2), 0.15),
    (_gauss, 5, math.sqrt(math.pi / 10), 0.15),
    (_wild, 3, math.sqrt(math.pi / 6), 0.3),  # outliers and failures hardly matter
])  # fmt: skip
def test_the_spread_that_was_put_in(tmp_path, cell, repeats, spread, within):
    rng = random.Random(1)
    rows = [[f"s{i + 1:03}", r + 1, _gauss(rng), cell(rng)] for i in range(len(LINE)) for r in range(repeats)]
    assert _noise(tmp_path, rows) == pytest.approx(math.sqrt(2) * spread * 0.02 * UNIT, rel=within)
    # Drift counts only from one repeat to the next; rows stand in any order.
    rows = [["s001", r, round(1.01**r, 9), round(2 * 1.01**r, 9)] for r in (3, 1, 4, 2)]
    drift = math.log(1.01) / 0.6745 * math.sqrt(math.pi / 8) * UNIT
    assert _noise(tmp_path, rows) == pytest.approx(drift, abs=1)


@examples(300)
@given(st.lists(st.integers(-40, 100), min_size=1, max_size=40), st.sampled_from([1.0, 2.0, 3.0]))
def test_it_is_students_test_with_one_neutral_scenario_more(drops, z):
    """In thousandths of a logarithm, the units of the test; scenarios without a difference do not count."""
    drops = [drop for drop in drops if drop] or [0]
    if sum(drops) <= 0:
        assert not _pays(drops, z)
        return
    d = np.array([*drops, 0])
    count = len(d)
    # Student's t about zero, from sums of squares about zero.
    t = d.sum() / math.sqrt(count * (d**2).sum() - d.sum() ** 2) * math.sqrt(count - 1)
    p = stats.t.sf(t, count - 1)
    if p < 0.8 * stats.norm.sf(z):
        assert _pays(drops, z)
    if p > 1.25 * stats.norm.sf(z):
        assert not _pays(drops, z)


def _pays(drops, z, **more):
    return bool(Evidence(z, **more).pays(1000.0 * np.array(drops)))


def test_a_sum_must_exceed_what_is_least_and_the_noise_and_few_that_agree_are_evidence():
    assert _pays([2] * 20, 3.0, least=1999) and not _pays([2] * 20, 3.0, least=2000)
    noise = 20 * 2000 / math.sqrt(20)
    assert _pays([2] * 20, 3.0, noise=noise - 1) and not _pays([2] * 20, 3.0, noise=noise + 1)
    assert _pays([50] * 3, Z_SMALL) and not _pays([50] * 2, Z_SMALL)
    assert Evidence(3.0, noise=1e6).pays(np.array([float(FAILED)]))  # one config that failed is enough
