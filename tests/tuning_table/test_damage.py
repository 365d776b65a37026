"""Damaged scenarios.csv and times.csv: an error that names the file and the line."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_builders import error_of_reading
from treegen_builders import write_table, write_winners

import tuning_table
from tuning_table import Failure, TableError

RUN, TIMES, SCENARIOS = FILES = "run.yaml", "times.csv", "scenarios.csv"
Edit = Callable[[str], str]


def _error(folder: Path, name: str, edit: Edit, write: Callable[..., Path] = write_table) -> str:
    """The error for a table with one file edited, without the folder."""
    path = write(folder) / name
    before = path.read_text()
    path.write_bytes(edit(before).encode("utf-8", "surrogateescape"))
    assert path.read_bytes() != before.encode()
    message = error_of_reading(folder)
    assert message.startswith(f"{folder}/") and "\n" not in message and len(message) < len(str(folder)) + 400
    return message.removeprefix(f"{folder}/")


def _swap(old: str, new: str) -> Edit:
    return lambda text: text.replace(old, new, 1)


STRUCTURE: list[tuple[str, str, Edit, int]] = [
    ("cut off in the last row", TIMES, lambda text: text[:-6], 19),
    ("without the last line end", TIMES, lambda text: text[:-1], 19),
    ("wrong header", TIMES, _swap("medium", "median"), 1),
    ("swapped columns", TIMES, _swap("narrow,medium", "medium,narrow"), 1),
    ("column too many", TIMES, _swap("wide", "wide,wider"), 1),
    ("column too few", TIMES, _swap(",wide", ""), 1),
    ("no header", TIMES, lambda text: text.split("\n", 1)[1], 1),
    ("empty", TIMES, lambda text: "", 1),
    ("missing cell", TIMES, _swap("s003,1,10.0,", "s003,1,"), 4),
    ("cell too many", TIMES, _swap("s003,1,10.0,", "s003,1,10.0,10.0,"), 4),
    ("blank line", TIMES, _swap("s003,1", "\ns003,1"), 4),
    ("NUL", TIMES, _swap("s003,1", "s003\0,1"), 4),
    ("open quote", TIMES, _swap("s003,1", '"s003,1'), 19),
    ("text after a quote", TIMES, _swap("s003,1", '"s003"x,1'), 4),
    ("bare carriage return", TIMES, _swap("s003,1", "s003\r,1"), 4),
    ("cell beyond the CSV reader", TIMES, _swap("s005,1,10.0", "s005,1," + "x" * 200_000), 6),
    ("long cell", TIMES, _swap("s005,1,10.0", "s005,1," + "x" * 100_000), 6),
    ("duplicate row", TIMES, lambda text: text + "s002,1,1,2,3\n", 20),
    ("unknown scenario", TIMES, _swap("s003,2", "s999,2"), 13),
    ("only failures", TIMES, _swap("s005,1,10.0,15.0,30.0", "s005,1,inf,inf,inf"), 6),
    ("nothing measured", TIMES, _swap("s005,1,10.0,15.0,30.0", "s005,1,,,"), 6),
    ("wrong header", SCENARIOS, _swap("columns", "cols"), 1),
    ("cut off in the last row", SCENARIOS, lambda text: text[:-1], 10),
    ("missing cell", SCENARIOS, _swap("s004,8,1,2", "s004,8,1"), 5),
    ("duplicate id", SCENARIOS, _swap("s004", "s002"), 5),
    ("empty id", SCENARIOS, _swap("s004", ""), 5),
    ("id with a blank", SCENARIOS, _swap("s004", "s 04"), 5),
    ("id with a line end", SCENARIOS, _swap("s004", '"s0\n4"'), 6),
    ("id that climbs", SCENARIOS, _swap("s004", "../s04"), 5),
    *(
        ("no UTF-8", name, lambda text: text + "\udcff\n", lines)
        for name, lines in ((TIMES, 20), (SCENARIOS, 11))
    ),
]


@pytest.mark.parametrize(
    ("name", "edit", "line"), [case[1:] for case in STRUCTURE], ids=[f"{c[1]}: {c[0]}" for c in STRUCTURE]
)
def test_damaged_structure_is_refused_by_its_line(tmp_path: Path, name: str, edit: Edit, line: int) -> None:
    assert _error(tmp_path / "t", name, edit).startswith(f"{name}:{line}: ")


NO_TIMES = "nan|NaN|-1|0|0.0|-0.0|0e5|1e12|1e99|1e999|9999999999999999|0x10|1_000| 5|5 |+5|5us|5;|.5|5.|1e"
NO_TIMES += '|Inf|-inf|infinity|None|\uff15|\u0663|½|²|"1,2"'
NO_REPEATS = ["0", "-1", "1.0", "x", "", "1e3", "²", "\u0663", "0x1", "1_0", "1000001", "01", "9" * 5000]
NO_INTEGERS = ["1.5", "1e3", "0x10", "1_0", "", "nan", "inf", "+8", " 8", "\uff18", "--8", "9" * 19, "True"]
NO_INTEGERS += ["9" * 40, str(2**62 + 1), str(-(2**62) - 1)]


CELLS = [(TIMES, "s005,1,10.0", f"s005,1,{cell}", "6: narrow ") for cell in NO_TIMES.split("|")]
CELLS += [(TIMES, "s005,2,", f"s005,{cell},", "15: repeat ") for cell in NO_REPEATS]
CELLS += [(SCENARIOS, "s004,8,", f"s004,{cell},", "5: rows ") for cell in NO_INTEGERS]


@pytest.mark.parametrize(("name", "old", "new", "place"), CELLS)
def test_a_cell_that_is_no_time_repeat_or_integer_is_named(
    tmp_path: Path, name: str, old: str, new: str, place: str
) -> None:
    assert _error(tmp_path / "t", name, _swap(old, new)).startswith(f"{name}:{place}")


@pytest.mark.parametrize("cells", ["10.0,15.0,", ",,", "inf,,", "1,2,3"])
def test_a_winners_row_has_exactly_one_time(tmp_path: Path, cells: str) -> None:
    edit = _swap("s005,1,10.0,,", f"s005,1,{cells}")
    assert _error(tmp_path / "t", TIMES, edit, write_winners).startswith(f"{TIMES}:6: ")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    path = write_table(tmp_path) / name
    path.unlink()
    for make in (lambda: None, path.mkdir, lambda: (path.rmdir(), path.symlink_to(path))):
        make()
        assert error_of_reading(tmp_path).startswith(f"{path}: ")
    assert error_of_reading(tmp_path / "none").startswith(f"{tmp_path / 'none'}: ")


def test_a_byte_order_mark_of_a_spreadsheet_changes_nothing(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "t")
    before = tuning_table.read(folder)
    for name in (RUN, SCENARIOS, TIMES):
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    assert tuning_table.read(folder) == before


def test_a_running_table_may_lack_rows_and_a_line_end(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "t")
    text = (folder / TIMES).read_text()
    for kept, rows in ((text[:-1], 17), (text.partition("\n")[0] + "\n", 0)):
        (folder / TIMES).write_text(kept)
        assert len(tuning_table.read(folder, running=True).visits) == rows


@given(
    st.sampled_from([TIMES, SCENARIOS]),
    st.integers(0, 400),
    st.integers(0, 30),
    st.text("1.,se\n\"'\0x-", max_size=5),
)
@settings(max_examples=300, deadline=None)
def test_a_damaged_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, name: str, at: int, removed: int, put: str
) -> None:
    folder = write_table(tmp_path_factory.mktemp("t"))
    text = (folder / name).read_text()
    (folder / name).write_text(text[:at] + put + text[at + removed :])
    try:
        table = tuning_table.read(folder)
    except TableError as error:
        assert "\n" not in str(error)
    else:
        assert all(visit.scenario in table.scenarios for visit in table.visits)
        cells = [cell for visit in table.visits for cell in visit.cells.values()]
        assert all(isinstance(cell, Failure) or cell > 0 for cell in cells)
