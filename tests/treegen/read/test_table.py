"""A table becomes arrays that hold its numbers; the committed tables can be read."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from treegen_builders import NARROW, REPOSITORY, WIDE, write_table

from treegen.core.files import device_key
from treegen.core.table import Cells, median_times
from treegen.read.problem import read_table

SHAPES = [(1, 1, 2), (8, 8, 2), (64, 64, 2)]


def _medians(folder: Path, *cells: list[object]) -> list[list[float]]:
    """Medians of the scenarios, given the two cells of narrow and wide in each row: [scenario][repeat]."""
    rows = [
        [f"s{i + 1:03}", repeat + 1, *row]
        for i, repeats in enumerate(cells)
        for repeat, row in enumerate(repeats)
    ]
    table = write_table(folder, shapes=SHAPES[: len(cells)], rows=rows, configs=(NARROW, WIDE))
    return median_times(read_table(table)).tolist()


def test_words_and_numbers_arrive_unchanged(tmp_path: Path) -> None:
    table = read_table(write_table(tmp_path / "t", shapes=SHAPES))
    assert (table.kernel, table.device_name, table.cells) == (
        "scale",
        "NVIDIA H100 80GB HBM3",
        Cells.MEASURED,
    )
    assert table.feature_names == ("rows", "columns", "heads")
    assert table.features.tolist() == [[1, 1, 2], [8, 8, 2], [64, 64, 2]]
    assert table.scenarios == ("s001", "s002", "s003")
    assert [(c.id, c.variant, dict(c.parameters)) for c in table.configs] == [
        ("narrow", "plain", {"block": 16, "warps": 2}),
        ("medium", "plain", {"block": 64, "warps": 4}),
        ("wide", "plain", {"block": 128, "warps": 8}),
    ]
    assert table.times.tolist() == [[10, 15, 30], [10, 15, 30], [40, 25, 20]] * 2
    assert table.row_repeat.tolist() == [1, 1, 1, 2, 2, 2]
    assert table.provenance["date"] == "2026-01-31"


def test_median_of_an_odd_and_an_even_number_of_repeats(tmp_path: Path) -> None:
    assert _medians(tmp_path / "odd", [[9, 1], [1, 2], [5, 30]]) == [[5, 2]]
    assert _medians(tmp_path / "even", [[9, 1], [1, 2], [5, 30], [3, 4]]) == [[4, 3]]


def test_cells_not_measured_are_left_out_of_the_median(tmp_path: Path) -> None:
    (scenario,) = _medians(tmp_path / "t", [["", 1], [7, ""], ["", 4], ["", 10]])
    assert scenario == [7, 4]


def test_a_config_that_failed_once_failed(tmp_path: Path) -> None:
    assert _medians(tmp_path / "t", [[1, 2], ["inf", 2], [1, 2]]) == [[math.inf, 2]]


def test_scenarios_that_a_stopped_run_did_not_reach_are_left_out(tmp_path: Path) -> None:
    rows = [["s003", 1, 40, 25, 20], ["s001", 1, 10, 15, 30]]
    table = read_table(write_table(tmp_path / "t", shapes=SHAPES, rows=rows))
    assert table.scenarios == ("s001", "s003")
    assert table.features.tolist() == [[1, 1, 2], [64, 64, 2]]
    assert median_times(table).tolist() == [[10, 15, 30], [40, 25, 20]]


JUDGES = ("untuned", "other_models")
TABLES = sorted({path.parent for path in (REPOSITORY / "tuning_data").rglob("run.yaml")})


@pytest.mark.parametrize("folder", TABLES, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_every_committed_table_can_be_read(folder: Path) -> None:
    table = read_table(folder)
    key = device_key(table.device_name)
    assert table.kernel == folder.parent.name
    assert folder.name in (key, *(f"{name}_{key}" for name in JUDGES))
