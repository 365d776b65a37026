"""A table becomes arrays that hold its numbers; the committed tables can be read."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from treegen_builders import NARROW, REPOSITORY, WIDE, error_of, time_rows, write_table, write_winners

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


def test_a_config_that_no_repeat_measured_is_nan(tmp_path: Path) -> None:
    (scenario,) = _medians(tmp_path / "t", [["", 1], ["", 2]])
    assert math.isnan(scenario[0]) and scenario[1] == 1.5


def test_a_config_that_failed_once_failed(tmp_path: Path) -> None:
    assert _medians(tmp_path / "t", [[1, 2], ["inf", 2], [1, 2]]) == [[math.inf, 2]]


def test_a_failure_in_a_single_repeat_counts_too(tmp_path: Path) -> None:
    assert _medians(tmp_path / "t", [["inf", 2]]) == [[math.inf, 2]]


def test_times_in_scientific_notation(tmp_path: Path) -> None:
    assert _medians(tmp_path / "t", [["1.5e2", "2E-1"]]) == [[150, 0.2]]


def test_scenarios_that_a_stopped_run_did_not_reach_are_left_out(tmp_path: Path) -> None:
    rows = [["s003", 1, 40, 25, 20], ["s001", 1, 10, 15, 30]]
    table = read_table(write_table(tmp_path / "t", shapes=SHAPES, rows=rows))
    assert table.scenarios == ("s001", "s003")
    assert table.features.tolist() == [[1, 1, 2], [64, 64, 2]]
    assert median_times(table).tolist() == [[10, 15, 30], [40, 25, 20]]


def test_a_run_stopped_between_repeats_keeps_what_it_has(tmp_path: Path) -> None:
    rows = time_rows(SHAPES)[:4]
    rows[3][2] = 20
    assert median_times(read_table(write_table(tmp_path / "t", shapes=SHAPES, rows=rows)))[:, 0].tolist() == [
        15,
        10,
        40,
    ]


def test_rows_in_any_order_give_the_same_medians(tmp_path: Path) -> None:
    rows = time_rows(SHAPES, lambda shape: [shape[0], shape[0] + 1, 900])
    expected = median_times(read_table(write_table(tmp_path / "a", shapes=SHAPES, rows=rows)))
    shuffled = [rows[i] for i in (5, 0, 4, 2, 1, 3)]
    assert np.array_equal(
        median_times(read_table(write_table(tmp_path / "b", shapes=SHAPES, rows=shuffled))), expected
    )


def test_winners_keep_one_time_a_scenario(tmp_path: Path) -> None:
    table = read_table(write_winners(tmp_path / "t", shapes=SHAPES))
    assert table.cells is Cells.WINNERS
    finite = np.isfinite(median_times(table))
    assert finite.tolist() == [[True, False, False], [True, False, False], [False, False, True]]


def test_windows_line_ends_change_nothing(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "t", shapes=SHAPES)
    expected = read_table(folder)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    found = read_table(folder)
    assert np.array_equal(found.times, expected.times) and found.scenarios == expected.scenarios


def test_a_damaged_table_is_an_input_error_with_its_line(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "t", shapes=SHAPES)
    path = folder / "times.csv"
    path.write_text(path.read_text().replace("40.0", "fast", 1))
    assert error_of(read_table, folder).startswith(f"{path}:4: ")


def test_features_of_any_size_within_62_bits_and_sign(tmp_path: Path) -> None:
    shapes = [(-(2**62), 2**62, 0), (1, 2, 3)]
    table = read_table(write_table(tmp_path / "t", shapes=shapes))
    assert table.features.tolist() == [list(shape) for shape in shapes]


FOLDER = REPOSITORY / "tuning_data/kernel_unified_attention_2d"


def test_the_imported_table() -> None:
    table = read_table(FOLDER / "amd_mi300x")
    assert table.device_name == "AMD Instinct MI300X"
    assert (table.kernel, table.cells) == ("kernel_unified_attention_2d", Cells.WINNERS)
    assert (len(table.scenarios), len(table.configs)) == (89, 6)
    times = median_times(table)
    assert (np.isfinite(times).sum(axis=1) == 1).all() and np.isfinite(times).any(axis=0).all()
    origin = table.provenance["origin"]
    assert origin["licence"] == "Apache-2.0" and "arXiv 2511.11581" in origin["published_by"]
    assert origin["evaluated_configs"] == 540


JUDGES = ("untuned", "untuned_options", "other_heads")
TABLES = sorted({path.parent for path in (REPOSITORY / "tuning_data").rglob("run.yaml")})


@pytest.mark.parametrize("folder", TABLES, ids=lambda path: path.relative_to(REPOSITORY).as_posix())
def test_every_committed_table_can_be_read(folder: Path) -> None:
    table = read_table(folder)
    key = device_key(table.device_name)
    assert table.kernel == folder.parent.name
    assert folder.name in (key, f"{key}_second", *(f"{name}_{key}" for name in JUDGES))
