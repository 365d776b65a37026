"""The noise floor, against repeats made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import Cell, write_table, write_winners

from treegen.read.table_file import read_table
from treegen.review.tables import NoiseFloor, noise_floor

SHAPES = [(1, 1, 2), (8, 8, 2)]


def _floor(folder: Path, *rows: list[Cell]) -> NoiseFloor | None:
    return noise_floor(read_table(write_table(folder, shapes=SHAPES, rows=rows)))


def test_repeats_that_agree_lose_nothing(tmp_path: Path) -> None:
    found = _floor(
        tmp_path, ["s001", 1, 1, 2, 3], ["s001", 2, 5, 6, 7], ["s002", 1, 3, 2, 1], ["s002", 2, 3, 2, 1]
    )
    assert found == NoiseFloor(2, 1.0, 0.0)


def test_each_repeat_chooses_and_the_others_score(tmp_path: Path) -> None:
    """In s001 each repeat finds another config.

    The first finds narrow, which takes 3/2 of the best in the second. The second finds medium, which takes
    4/1 in the first.
    """
    found = _floor(
        tmp_path, ["s001", 1, 1, 4, 9], ["s001", 2, 3, 2, 9], ["s002", 1, 1, 2, 3], ["s002", 2, 1, 2, 3]
    )
    assert found is not None and found.scenarios == 2 and found.changed == 0.5
    assert found.slowdown == pytest.approx((1.5 * 4) ** (1 / 4))


def test_three_repeats_are_scored_by_the_median_of_the_other_two(tmp_path: Path) -> None:
    found = _floor(
        tmp_path, ["s001", 1, 1, 2, 9], ["s001", 2, 4, 2, 9], ["s001", 3, 2, 1, 9], ["s002", 1, 1, 1, 1]
    )
    first = 3 / 1.5  # finds narrow; the others take (4 + 2) / 2 with it, (2 + 1) / 2 with medium
    second = 1.5 / 1.5  # finds medium; the others take as long with narrow
    third = 2 / 2  # finds medium; the others take (1 + 4) / 2 with narrow
    assert found is not None and found.scenarios == 1
    assert found.slowdown == pytest.approx((first * second * third) ** (1 / 3))
    assert found.changed == pytest.approx(1 / 3)


def test_only_configs_that_both_timed_take_part(tmp_path: Path) -> None:
    """narrow is fastest in the first repeat, but the second did not time it."""
    found = _floor(tmp_path, ["s001", 1, 1, 4, 9], ["s001", 2, "", 3, 2])
    assert found is not None
    assert found.slowdown == pytest.approx((3 / 2 * 9 / 4) ** (1 / 2))


def test_a_config_that_failed_once_takes_no_part(tmp_path: Path) -> None:
    found = _floor(tmp_path, ["s001", 1, 1, 4, 9], ["s001", 2, "inf", 3, 4])
    assert found == NoiseFloor(1, 1.0, 0.0)


@pytest.mark.parametrize(
    "rows",
    [
        [["s001", 1, 1, 2, 3], ["s002", 1, 1, 2, 3]],
        [["s001", 1, 1, "", ""], ["s001", 2, 1, 2, ""]],
        [["s001", 1, 1, "", ""], ["s001", 2, "", 2, ""]],
    ],
    ids=["one repeat", "one config in common", "none in common"],
)
def test_no_scenario_can_be_compared(tmp_path: Path, rows: list[list[Cell]]) -> None:
    assert _floor(tmp_path, *rows) is None


def test_a_table_of_winners_has_no_noise_floor(tmp_path: Path) -> None:
    assert noise_floor(read_table(write_winners(tmp_path))) is None
