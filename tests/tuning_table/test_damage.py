"""Damaged scenarios.csv and times.csv: an error that names the file and the line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from table_builders import error_of_reading
from treegen_builders import write_table, write_winners

import tuning_table

TIMES, SCENARIOS = "times.csv", "scenarios.csv"
Edit = Callable[[str], str]


def _damage(
    folder: Path, name: str, edit: Edit, write: Callable[..., Path] = write_table
) -> tuple[str, Path]:
    """The error for a table with one file edited, and that file."""
    path = write(folder) / name
    before = path.read_text()
    path.write_bytes(edit(before).encode("utf-8", "surrogateescape"))
    assert path.read_bytes() != before.encode()
    return error_of_reading(folder), path


def _swap(old: str, new: str) -> Edit:
    return lambda text: text.replace(old, new, 1)


STRUCTURE = [
    ("cut off in the last row", TIMES, lambda text: text[:-6], 19, "cut off"),
    ("without the last line end", TIMES, lambda text: text[:-1], 19, "cut off"),
    ("wrong header", TIMES, _swap("medium", "median"), 1, "column 4 must be 'medium'"),
    ("swapped columns", TIMES, _swap("narrow,medium", "medium,narrow"), 1, "column 3 must be 'narrow'"),
    ("column too many", TIMES, _swap("wide", "wide,wider"), 1, "has 6 columns, not the 5"),
    ("column too few", TIMES, _swap(",wide", ""), 1, "has 4 columns, not the 5"),
    ("no header", TIMES, lambda text: text.split("\n", 1)[1], 1, "column 1 must be 'scenario'"),
    ("byte order mark", TIMES, lambda text: "\ufeff" + text, 1, "column 1 must be 'scenario'"),
    ("empty", TIMES, lambda text: "", 1, "has 0 columns"),
    ("missing cell", TIMES, _swap("s003,1,10.0,", "s003,1,"), 4, "has 4 cells, not 5"),
    ("cell too many", TIMES, _swap("s003,1,10.0,", "s003,1,10.0,10.0,"), 4, "has 6 cells, not 5"),
    ("blank line", TIMES, _swap("s003,1", "\ns003,1"), 4, "has 0 cells, not 5"),
    ("semicolons", TIMES, _swap("s003,1,10.0", "s003;1;10.0"), 4, "has 3 cells, not 5"),
    ("NUL", TIMES, _swap("s003,1", "s003\0,1"), 4, "NUL"),
    ("open quote", TIMES, _swap("s003,1", '"s003,1'), 19, "CSV"),
    ("text after a quote", TIMES, _swap("s003,1", '"s003"x,1'), 4, "CSV"),
    ("bare carriage return", TIMES, _swap("s003,1", "s003\r,1"), 4, ""),
    ("duplicate row", TIMES, lambda text: text + "s002,1,1,2,3\n", 20, "already in line 3"),
    ("unknown scenario", TIMES, _swap("s003,2", "s999,2"), 13, "'s999' is not in scenarios.csv"),
    ("wrong header", SCENARIOS, _swap("columns", "cols"), 1, "column 3 must be 'columns'"),
    ("swapped columns", SCENARIOS, _swap("rows,columns", "columns,rows"), 1, "column 2 must be 'rows'"),
    ("cut off in the last row", SCENARIOS, lambda text: text[:-1], 10, "cut off"),
    ("byte order mark", SCENARIOS, lambda text: "\ufeff" + text, 1, "column 1 must be 'scenario'"),
    ("NUL", SCENARIOS, _swap("s004", "s0\x0004"), 5, "NUL"),
    ("missing cell", SCENARIOS, _swap("s004,8,1,2", "s004,8,1"), 5, "has 3 cells, not 4"),
    ("duplicate id", SCENARIOS, _swap("s004", "s002"), 5, "s002 is already in line 3"),
    ("empty id", SCENARIOS, _swap("s004", ""), 5, "scenario id ''"),
    ("id with a blank", SCENARIOS, _swap("s004", "s 04"), 5, "scenario id 's 04'"),
    ("id with a line end", SCENARIOS, _swap("s004", '"s0\n4"'), 6, "scenario id 's0\\n4'"),
    ("id that climbs", SCENARIOS, _swap("s004", "../s04"), 5, "scenario id '../s04'"),
]


@pytest.mark.parametrize(
    ("name", "edit", "line", "says"), [c[1:] for c in STRUCTURE], ids=[f"{c[1]}: {c[0]}" for c in STRUCTURE]
)
def test_damaged_structure(tmp_path: Path, name: str, edit: Edit, line: int, says: str) -> None:
    message, path = _damage(tmp_path / "t", name, edit)
    assert message.startswith(f"{path}:{line}: ") and says in message


NO_TIMES = "nan|NaN|-1|0|0.0|-0.0|0e5|1e12|1e99|1e999|9999999999999999|0x10|1_000| 5|5 |+5|5us|5;|.5|5.|1e"
NO_TIMES += "|Inf|-inf|infinity|None|\uff15|\u0663|½|²"


@pytest.mark.parametrize("cell", [*NO_TIMES.split("|"), '"1,2"'])
def test_what_is_no_time(tmp_path: Path, cell: str) -> None:
    message, path = _damage(tmp_path / "t", TIMES, _swap("s005,1,10.0", f"s005,1,{cell}"))
    assert message.startswith(
        f"{path}:6: narrow must be microseconds from 0.001 to below 1e+12, inf or empty, not "
    )


@pytest.mark.parametrize(
    "cell",
    ["0", "-1", "1.0", "x", "", "1e3", "²", "\u0663", "0x1", "1_0", "1000001", "01", "9" * 30, "9" * 5000],
)
def test_what_is_no_repeat(tmp_path: Path, cell: str) -> None:
    message, path = _damage(tmp_path / "t", TIMES, _swap("s005,2,", f"s005,{cell},"))
    assert message.startswith(f"{path}:15: repeat must count from 1, not ")


NO_INTEGERS = ["1.5", "1e3", "0x10", "1_0", "", "nan", "inf", "+8", " 8", "\uff18", "--8", "9" * 19, "True"]


@pytest.mark.parametrize("cell", [*NO_INTEGERS, "9" * 40, str(2**62 + 1), str(-(2**62) - 1)])
def test_what_is_no_feature_value(tmp_path: Path, cell: str) -> None:
    message, path = _damage(tmp_path / "t", SCENARIOS, _swap("s004,8,", f"s004,{cell},"))
    assert message.startswith(f"{path}:5: rows must be an integer within 62 bits, not ")


def test_a_long_cell_is_quoted_short(tmp_path: Path) -> None:
    message, _ = _damage(tmp_path / "t", TIMES, _swap("s005,1,10.0", "s005,1," + "x" * 100_000))
    assert len(message) < 400


def test_a_cell_beyond_the_csv_reader(tmp_path: Path) -> None:
    message, path = _damage(tmp_path / "t", TIMES, _swap("s005,1,10.0", "s005,1," + "x" * 200_000))
    assert message.startswith(f"{path}:6: ") and "CSV" in message


@pytest.mark.parametrize("name", ["run.yaml", SCENARIOS, TIMES])
def test_no_utf8(tmp_path: Path, name: str) -> None:
    message, path = _damage(tmp_path / "t", name, lambda text: text + "\udcff\n")
    assert message == f"{path}:{path.read_bytes().count(bytes([10]))}: not UTF-8 text"


@pytest.mark.parametrize("name", ["run.yaml", SCENARIOS, TIMES])
def test_missing_file(tmp_path: Path, name: str) -> None:
    folder = write_table(tmp_path / "t")
    (folder / name).unlink()
    assert error_of_reading(folder) == f"{folder / name}: no such file"


@pytest.mark.parametrize("name", ["run.yaml", SCENARIOS, TIMES])
def test_folder_in_place_of_a_file(tmp_path: Path, name: str) -> None:
    folder = write_table(tmp_path / "t")
    (folder / name).unlink()
    (folder / name).mkdir()
    assert error_of_reading(folder) == f"{folder / name}: not a plain file"


@pytest.mark.parametrize("name", ["run.yaml", SCENARIOS, TIMES])
def test_symbolic_link_to_itself(tmp_path: Path, name: str) -> None:
    folder = write_table(tmp_path / "t")
    (folder / name).unlink()
    (folder / name).symlink_to(folder / name)
    assert error_of_reading(folder).startswith(f"{folder / name}: ")


def test_no_folder(tmp_path: Path) -> None:
    assert error_of_reading(tmp_path / "none").startswith(f"{tmp_path / 'none'}: no such table folder")


def test_header_only(tmp_path: Path) -> None:
    message, path = _damage(tmp_path / "a", TIMES, lambda text: text.splitlines()[0] + "\n")
    assert message == f"{path}: holds no row; measure the table, or take it out of the spec"
    message, path = _damage(tmp_path / "b", SCENARIOS, lambda text: text.splitlines()[0] + "\n")
    assert message == f"{path}: holds no scenario"


@pytest.mark.parametrize("cells", ["inf,inf,inf", ",,", "inf,,"])
def test_a_row_in_which_nothing_can_be_chosen(tmp_path: Path, cells: str) -> None:
    message, path = _damage(tmp_path / "t", TIMES, _swap("s005,1,10.0,15.0,30.0", f"s005,1,{cells}"))
    assert message.startswith(f"{path}:6: no config has a time")


@pytest.mark.parametrize("cells", ["10.0,15.0,", ",,", "inf,,", "1,2,3"])
def test_a_winners_row_with_other_than_one_time(tmp_path: Path, cells: str) -> None:
    message, path = _damage(tmp_path / "t", TIMES, _swap("s005,1,10.0,,", f"s005,1,{cells}"), write_winners)
    assert message == f"{path}:6: a table of winners has exactly one time a row"


def test_a_running_table_may_lack_rows_and_a_line_end(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "t")
    text = (folder / TIMES).read_text()
    for kept, rows in ((text[:-1], 17), (text.partition("\n")[0] + "\n", 0)):
        (folder / TIMES).write_text(kept)
        assert len(tuning_table.read(folder, running=True).rows) == rows
