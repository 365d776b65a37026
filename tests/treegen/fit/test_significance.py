"""Noise as a table shows it, and what is more than noise."""

import math
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from treegen_builders import NARROW, WIDE, Cell, Row, write_table
from treegen_strategies import examples

from treegen.core.problem import UNIT
from treegen.fit.costs import FAILED, table_noise
from treegen.fit.evidence import Evidence
from treegen.fit.regime import Z_SMALL
from treegen.read.problem import read_table

LINE: list[Row] = [(i + 1, 5, 2) for i in range(150)]


# Noise of a table


def _gauss(rng: random.Random) -> Cell:
    return round(50 * math.exp(rng.gauss(0, 0.02)), 9)


def _wild(rng: random.Random) -> Cell:
    kind, time = rng.random(), float(_gauss(rng))
    return "inf" if kind < 0.05 else "" if kind < 0.1 else round(9 * time, 9) if kind < 0.15 else time


def _rows(cell: Callable[[random.Random], Cell], repeats: int) -> list[list[Cell]]:
    rng = random.Random(1)
    return [[f"s{i + 1:03}", r + 1, _gauss(rng), cell(rng)] for i in range(len(LINE)) for r in range(repeats)]


def _noise(folder: Path, rows: list[list[Cell]]) -> int:
    return table_noise(read_table(write_table(folder, shapes=LINE, rows=rows, configs=(NARROW, WIDE))))


@pytest.mark.parametrize(("repeats", "spread"), [(2, math.sqrt(1 / 2)), (5, math.sqrt(math.pi / 10))])
def test_the_spread_that_was_put_in(tmp_path: Path, repeats: int, spread: float) -> None:
    noise = _noise(tmp_path, _rows(_gauss, repeats))
    assert noise == pytest.approx(math.sqrt(2) * spread * 0.02 * UNIT, rel=0.15)


def test_outliers_and_failures_hardly_matter(tmp_path: Path) -> None:
    noise = _noise(tmp_path, _rows(_wild, 3))
    assert noise == pytest.approx(math.sqrt(math.pi / 3) * 0.02 * UNIT, rel=0.3)


def test_drift_over_many_repeats_counts_only_from_one_to_the_next(tmp_path: Path) -> None:
    """Rows stand in any order; the repeats' numbers say which follow each other."""
    rows: list[list[Cell]] = [["s001", r, round(1.01**r, 9), round(2 * 1.01**r, 9)] for r in (3, 1, 4, 2)]
    noise = _noise(tmp_path, rows)
    assert noise == pytest.approx(math.log(1.01) / 0.6745 * math.sqrt(math.pi / 8) * UNIT, abs=1)


# What is more than noise


@examples(300)
@given(st.lists(st.integers(-40, 100), min_size=1, max_size=40), st.sampled_from([1.0, 2.0, 3.0]))
def test_it_is_students_test_with_one_neutral_scenario_more(drops: list[int], z: float) -> None:
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


def _pays(drops: list[int], z: float, **more: float) -> bool:
    return bool(Evidence(z, **more).pays(1000.0 * np.array(drops)))


def test_the_sum_must_exceed_what_is_least_and_the_noise() -> None:
    assert _pays([2] * 20, 3.0, least=1999) and not _pays([2] * 20, 3.0, least=2000)
    noise = 20 * 2000 / math.sqrt(20)
    assert _pays([2] * 20, 3.0, noise=noise - 1) and not _pays([2] * 20, 3.0, noise=noise + 1)


def test_three_that_agree_are_evidence_for_a_row_and_two_are_not() -> None:
    assert _pays([50] * 3, Z_SMALL) and not _pays([50] * 2, Z_SMALL)


def test_one_scenario_in_which_a_config_failed_is_enough() -> None:
    assert Evidence(3.0, noise=1e6).pays(np.array([float(FAILED)]))
