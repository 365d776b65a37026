"""A table becomes arrays that hold its numbers; the committed tables can be read."""

import math
from pathlib import Path

import pytest
from treegen_builders import CONFIGS, NARROW, REPOSITORY, WIDE, Cell, write_table

from treegen.core.files import device_key
from treegen.core.table import Cells, median_times
from treegen.read.problem import read_table

SHAPES = [(1, 1, 2), (8, 8, 2), (64, 64, 2)]


def test_words_and_numbers_arrive_unchanged(tmp_path: Path) -> None:
    table = read_table(write_table(tmp_path / "t", shapes=SHAPES))
    known = (table.kernel, table.device_name, table.cells)
    assert known == ("scale", "NVIDIA H100 80GB HBM3", Cells.MEASURED)
    assert table.feature_names == ("rows", "columns", "heads")
    assert table.features.tolist() == [[1, 1, 2], [8, 8, 2], [64, 64, 2]]
    assert table.scenarios == ("s001", "s002", "s003")
    assert [{"id": c.id, "variant": c.variant, **c.parameters} for c in table.configs] == [*CONFIGS]
    assert table.times.tolist() == [[10, 15, 30], [10, 15, 30], [40, 25, 20]] * 2
    assert table.row_repeat.tolist() == [1, 1, 1, 2, 2, 2]
    assert table.provenance["date"] == "2026-01-31"


@pytest.mark.parametrize(
    ("repeats", "median"),
    [
        ([[9, 1], [1, 2], [5, 30]], [5, 2]),
        ([[9, 1], [1, 2], [5, 30], [3, 4]], [4, 3]),
        ([["", 1], [7, ""], ["", 4], ["", 10]], [7, 4]),  # what was not measured is left out
        ([[1, 2], ["inf", 2], [1, 2]], [math.inf, 2]),  # what failed once failed
    ],
)
def test_the_median_of_repeats(tmp_path: Path, repeats: list[list[Cell]], median: list[float]) -> None:
    rows = [["s001", number, *row] for number, row in enumerate(repeats, 1)]
    table = write_table(tmp_path / "t", shapes=SHAPES[:1], rows=rows, configs=(NARROW, WIDE))
    assert median_times(read_table(table)).tolist() == [median]


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
