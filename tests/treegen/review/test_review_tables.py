"""The noise floor against repeats made by hand, and a problem's median times."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from treegen_builders import CONFIGS, Cell, grid, problem, time_rows, write_table, write_winners

from treegen.read.problem import read_table
from treegen.review.tables import NoiseFloor, noise_floor


def _floor(folder: Path, *rows: list[Cell]) -> NoiseFloor | None:
    return noise_floor(read_table(write_table(folder, shapes=[(1, 1, 2), (8, 8, 2)], rows=rows)))


def test_each_repeat_chooses_and_the_others_score(tmp_path: Path) -> None:
    """In s001 the first finds narrow, 3/2 of the best in the second, which finds medium, 4/1 in the first.

    Wide takes no part: it failed once in s001, and was not timed once in s002.
    """
    found = _floor(
        tmp_path, ["s001", 1, 1, 4, "inf"], ["s001", 2, 3, 2, 1], ["s002", 1, 1, 2, 3], ["s002", 2, 1, 2, ""]
    )
    assert found is not None and (found.scenarios, found.changed) == (2, 0.5)
    assert found.slowdown == pytest.approx((1.5 * 4) ** (1 / 4))


def test_three_repeats_are_scored_by_the_median_of_the_other_two(tmp_path: Path) -> None:
    found = _floor(
        tmp_path, ["s001", 1, 1, 2, 9], ["s001", 2, 4, 2, 9], ["s001", 3, 2, 1, 9], ["s002", 1, 1, 1, 1]
    )
    assert found is not None and found.scenarios == 1
    assert found.slowdown == pytest.approx((3 / 1.5) ** (1 / 3))
    assert found.changed == pytest.approx(1 / 3)


def test_without_two_repeats_of_two_configs_there_is_no_noise_floor(tmp_path: Path) -> None:
    assert _floor(tmp_path / "one repeat", ["s001", 1, 1, 2, 3], ["s002", 1, 1, 2, 3]) is None
    assert _floor(tmp_path / "one config", ["s001", 1, 1, "", ""], ["s001", 2, 1, 2, ""]) is None
    assert noise_floor(read_table(write_winners(tmp_path / "winners"))) is None


def test_times_are_medians_in_the_order_of_the_problem(tmp_path: Path) -> None:
    """The table's rows and columns are in another order; a failed and an empty cell stay what they are."""
    rows = time_rows(grid(), lambda shape: [shape[0], 10 * shape[1], 500 + shape[0]])
    for row in rows[9:]:
        row[2] = row[2] * 3  # of two repeats the median is the mean
    rows[0][3] = "inf"
    rows[1][4] = rows[10][4] = ""
    found = problem(tmp_path, rows=rows, configs=tuple(reversed(CONFIGS)))
    times = found.times()
    for row, scenario in enumerate(found.scenarios):
        shape = grid()[int(scenario[1:]) - 1]
        expected = [500 + shape[0], 10 * shape[1], 2 * shape[0]]
        if scenario == "s001":
            expected[1] = math.inf
        if scenario == "s002":
            expected[0] = math.nan
        np.testing.assert_array_equal(times[row], expected)
