"""Damaged files of a table, and what run.yaml may not hold: an error that names the file and the line."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_builders import error_of_reading
from treegen_builders import NARROW, WIDE, line_of, run, write_table, write_winners, yaml_text

import tuning_table
from tuning_table import Failure, TableError
from tuning_table.run_yaml import read_header
from tuning_table.strict_yaml import parse

RUN, TIMES, SCENARIOS = FILES = "run.yaml", "times.csv", "scenarios.csv"


def _error(folder, name, edit, write=write_table):
    """The error for a table with one file edited, without the folder."""
    path = write(folder) / name
    before = path.read_text()
    path.write_bytes(edit(before).encode("utf-8", "surrogateescape"))
    assert path.read_bytes() != before.encode()
    message = error_of_reading(folder)
    assert message.startswith(f"{folder}/") and "\n" not in message and len(message) < len(str(folder)) + 400
    return message.removeprefix(f"{folder}/")


def _swap(old, new):
    return lambda text: text.replace(old, new, 1)


STRUCTURE = [
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
def test_damaged_structure_is_refused_by_its_line(tmp_path, name, edit, line):
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
def test_a_cell_of_another_kind_is_named(tmp_path, name, old, new, place):
    assert _error(tmp_path / "t", name, _swap(old, new)).startswith(f"{name}:{place}")


@pytest.mark.parametrize("cells", ["10.0,15.0,", ",,", "inf,,", "1,2,3"])
def test_a_winners_row_has_exactly_one_time(tmp_path, cells):
    edit = _swap("s005,1,10.0,,", f"s005,1,{cells}")
    assert _error(tmp_path / "t", TIMES, edit, write_winners).startswith(f"{TIMES}:6: ")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none_is_refused(tmp_path, name):
    path = write_table(tmp_path) / name
    path.unlink()
    for make in (lambda: None, path.mkdir, lambda: (path.rmdir(), path.symlink_to(path))):
        make()
        assert error_of_reading(tmp_path).startswith(f"{path}: ")
    assert error_of_reading(tmp_path / "none").startswith(f"{tmp_path / 'none'}: ")
    path.unlink()
    path.touch()
    os.truncate(path, (1 << 20) + 1)  # too large
    assert name != RUN or error_of_reading(tmp_path).startswith(f"{path}: ")


def test_a_byte_order_mark_is_ignored_and_a_running_table_may_end_early(tmp_path):
    folder = write_table(tmp_path / "t")
    text, before = (folder / TIMES).read_text(), tuning_table.read(folder)
    for name in FILES:
        (folder / name).write_bytes(b"\xef\xbb\xbf" + (folder / name).read_bytes())
    assert tuning_table.read(folder) == before
    for kept, rows in ((text[:-1], 17), (text.partition("\n")[0] + "\n", 0)):
        (folder / TIMES).write_text(kept)
        assert len(tuning_table.read(folder, running=True).visits) == rows


@given(
    st.sampled_from([TIMES, SCENARIOS]),
    st.integers(0, 400),
    st.integers(0, 30),
    st.text("1.,se\n\"'\0x-", max_size=5),
)
@settings(max_examples=300)
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path_factory, name, at, removed, put):
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


# run.yaml

PATH = Path("run.yaml")
REQUIRED = ["format", "kernel", "device", "cells", "timing", "features", "configs"]
PROVENANCE = ["source_hash", "date"]
SUMMARY = {"seconds": 5400.5, "rows": 18, "noise_p90": 0.02, "finished": True, "failures": {"no": 1}}
COURSE = {"scenario_set": "serving", "seed": -7, "strategy": "race", "summary": SUMMARY}


def _yaml_error(text):
    with pytest.raises(TableError) as caught:
        read_header(PATH, text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
    return caught.value


def test_a_missing_key_is_named_and_imported_tables_have_an_origin_instead_of_some():
    for key in (*REQUIRED, *PROVENANCE):
        content = run()
        del content[key]
        error = _yaml_error(yaml_text(content))
        assert error.line == 1 and key in error.what
    content = run(origin={"tool": "another tuner", "evaluated_configs": 1_000_000})
    for key in PROVENANCE:
        del content[key]
    assert read_header(PATH, yaml_text(content)).provenance["origin"] == content["origin"]
    for course, value in COURSE.items():
        text = yaml_text({**content, course: value})
        assert _yaml_error(text).line == line_of(text, f"{course}:")


def _config(**changes):
    return {key: value for key, value in {**WIDE, **changes}.items() if value is not ...}


# Values of a key; the error must name the key's line.
WRONG = {
    "format": [2, "1", True],
    "cells": ["medians"],
    "kernel": [7],
    "device": ["H100"],
    "timing": [["graph"]],
    "origin": ["a paper", {"tool": 1, "evaluated_configs": 0}, {"tool": 1, "evaluated_configs": 1_000_001}],
    "scenario_set": [5],
    "strategy": [["race"]],
    "seed": ["1", 1.0, True, 2**62 + 1, None],
    "summary": ["done", {"source_files": 1}],
    "source_files": [["a.py"]],
    "features": [[], "rows", ["rows", "rows"], ["rows", 5], ["lambda"], ["match"], ["min"], ["__class__"]],
    "constants": ["rows", [5], ["warmth"], ["rows", "rows"]],
    "values": [["rows"], {"warmth": ["a"]}, {"rows": []}, {"rows": ["a", "a"]}, {"rows": ["<b>"]}],
    "configs": [[], {"id": "a"}, [dict(NARROW), "wide"]],
}
WRONG["features"] += [["os.system"], ['a"b'], ["a\nb"], ["rоws"], ["a" * 65], [""]]  # noqa: RUF001
NESTED = [
    ({"device": {"arch": "sm_90"}}, "arch:"),
    ({"device": {"name": "H100", "vram": 80}}, "vram:"),
    ({"device": {"name": "x", "cache_bytes": 1.5}}, "cache_bytes:"),
    ({"device": {"name": "x", "cache_bytes": -1}}, "cache_bytes:"),
    *(({"summary": {"seconds": value}}, "seconds:") for value in (-1.5, float("nan"), "90 s", True)),
    *(({"summary": {"noise_p90": value}}, "noise_p90:") for value in (-1, float("nan"), "little")),
    ({"configs": [_config(id=...)]}, "- variant:"),
    ({"configs": [dict(NARROW), _config(id="narrow")]}, ("narrow", 2)),
    ({"configs": [_config(id="a,b")]}, "a,b"),
    ({"configs": [_config(id="=1+1")]}, "=1+1"),
    ({"configs": [_config(id=7)]}, "id: 7"),
    *(({"configs": [_config(block=value)]}, "block:") for value in (1.5, True, None, -1, 2**31)),
    ({"configs": [{**WIDE, "in": 1}]}, "id: wide"),
    ({"configs": [dict(NARROW), _config(warps=...)]}, ("id:", 2)),
    ({"configs": [dict(NARROW), _config(variant=...)]}, ("id:", 2)),
]


@pytest.mark.parametrize(
    ("key", "value"), [(key, value) for key, values in WRONG.items() for value in values]
)
def test_a_wrong_value_is_refused_by_its_line_and_key(key, value):
    text = yaml_text(run(**{key: value}))
    error = _yaml_error(text)
    first = line_of(text, f"{key}:")
    size = len(yaml_text({key: value}).splitlines())
    assert error.line is not None and first <= error.line < first + size and key in error.what


@pytest.mark.parametrize(("changes", "needle"), NESTED)
def test_a_wrong_nested_value_names_its_line(changes, needle):
    text = yaml_text(run(**changes))
    assert _yaml_error(text).line == line_of(text, *([needle] if isinstance(needle, str) else needle))


NO_PLAIN_DATA = [
    ("a: 1\nb: 2\na: 3\n", 3),
    ("a:\n  b: 1\n  'b': 1\n", 3),
    ("a: &x [1]\nb: *x\n", 2),
    ("a: &x {b: 1}\nc:\n  <<: *x\n", 3),
    ("a: &x b\n*x : 1\n", 2),
    ("a: 1\nb: !!python/object/apply:os.system [id]\n", 2),
    *((f"a: {value}\n", 1) for value in ("!config {}", "!mine b", "!!binary aGk=", "!!set {b}")),
    *((f"a: {value}\n", 1) for value in ("!!omap [b: 1]", "!!map b", "!!float '-'", "!!int ''", "0b_")),
    *((f"a: {value}\n", 1) for value in ("b: c", "1" + ":30" * 300_000, "9" * 5000)),
    *((f"a: 1\nb: {value}\n", 2) for value in ("yes", "No", "True", '"\\U00110000"')),
    ("a:\n\tb: 1\n", 2),
    ("%YAML 9.9\n---\na: 1\n", 1),
    ("a: 1\n!mine b: 1\n", 2),
    ("a: 1\n? {b: 1}\n: 2\n", 2),
    ("a: 1\n---\na: 2\n", 2),
    ("a: [1\nb: 2\n", 2),
]


@pytest.mark.parametrize(("text", "line"), NO_PLAIN_DATA)
def test_yaml_beyond_plain_data_is_refused_by_its_line(text, line):
    assert _yaml_error(text).line == line


def test_plain_data_keeps_its_kinds_and_lines_and_what_is_no_mapping_or_too_deep_is_refused():
    for text in ("", "# nothing\n", "just text\n", "- a\n", "null\n", "---\n...\n", "a: \x1b\n"):
        _yaml_error(text)
    for opening in ("[", "{a: ", "- ", "? ", "[{a: "):
        with pytest.raises(TableError):
            parse(PATH, "a:\n  " + opening * 100_000)
    text = "\ufeffa: 1\nb: [x, 2, 0.5, true, null]\nc:\n  d: 2026-01-31 10:00:00\n  e: '7'\n"
    values, lines = parse(PATH, text)
    assert values == {"a": 1, "b": ["x", 2, 0.5, True, None], "c": {"d": "2026-01-31 10:00:00", "e": "7"}}
    assert (lines["b",], lines["b", 3], lines["c",], lines["c", None], lines["c", "e"]) == (2, 2, 3, 4, 5)


VALID = yaml_text(run(**COURSE, values={"rows": ["few", "many"]}))
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
PLAIN = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)


@given(PLAIN)
@settings(max_examples=100)
def test_plain_data_is_read_as_it_was_written(value):
    assert parse(PATH, yaml_text({"a": value}))[0] == {"a": value}


@given(
    st.integers(0, len(VALID)), st.integers(0, 40), st.text(alphabet="ab1 :-[]{}&*!'\"\n\t#,|>%@", max_size=6)
)
@settings(max_examples=200)
def test_a_damaged_run_yaml_is_read_or_refused_by_lines_that_name_it(at, removed, put):
    text = VALID[:at] + put + VALID[at + removed :]
    try:
        read_header(PATH, text)
    except TableError as error:
        assert all(line.startswith("run.yaml:") for line in str(error).split("\n"))
