"""What run.yaml may hold; a mistake is an error that names the line."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_builders import error_of_reading
from treegen_builders import NARROW, WIDE, line_of, run, write_table, yaml_text

from tuning_table import TableError
from tuning_table.run_yaml import read_header
from tuning_table.strict_yaml import parse

PATH = Path("run.yaml")
REQUIRED = ["format", "kernel", "device", "cells", "timing", "features", "configs"]
PROVENANCE = ["source_hash", "date"]
SUMMARY = {"seconds": 5400.5, "rows": 18, "noise_p90": 0.02, "finished": True, "failures": {"no": 1}}
COURSE: dict[str, Any] = {"scenario_set": "serving", "seed": -7, "strategy": "race", "summary": SUMMARY}


def _error(text: str) -> TableError:
    with pytest.raises(TableError) as caught:
        read_header(PATH, text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400
    return caught.value


@pytest.mark.parametrize("key", [*REQUIRED, *PROVENANCE])
def test_a_missing_key_is_named(key: str) -> None:
    content = run()
    del content[key]
    error = _error(yaml_text(content))
    assert error.line == 1 and key in error.what


@pytest.mark.parametrize("course", COURSE)
def test_an_imported_table_states_its_origin_instead_of_the_course_of_a_run(course: str) -> None:
    content = run(origin={"tool": "another tuner", "evaluated_configs": 1_000_000})
    for key in PROVENANCE:
        del content[key]
    assert read_header(PATH, yaml_text(content)).provenance["origin"] == content["origin"]
    text = yaml_text({**content, course: COURSE[course]})
    assert _error(text).line == line_of(text, f"{course}:")


def _config(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**WIDE, **changes}.items() if value is not ...}


# Values of a key; the error must name the key's line.
WRONG: dict[str, list[Any]] = {
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
NESTED: list[tuple[dict[str, Any], str | tuple[str, int]]] = [
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
def test_a_wrong_value_is_refused_by_its_line_and_key(key: str, value: Any) -> None:
    text = yaml_text(run(**{key: value}))
    error = _error(text)
    first = line_of(text, f"{key}:")
    size = len(yaml_text({key: value}).splitlines())
    assert error.line is not None and first <= error.line < first + size and key in error.what


@pytest.mark.parametrize(("changes", "needle"), NESTED)
def test_a_wrong_value_within_a_section_is_refused_by_its_line(
    changes: dict[str, Any], needle: str | tuple[str, int]
) -> None:
    text = yaml_text(run(**changes))
    assert _error(text).line == line_of(text, *([needle] if isinstance(needle, str) else needle))


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
def test_yaml_beyond_plain_data_is_refused_by_its_line(text: str, line: int) -> None:
    assert _error(text).line == line


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[{a: "])
def test_deep_nesting_is_not_read_to_its_end(opening: str) -> None:
    with pytest.raises(TableError):
        parse(PATH, "a:\n  " + opening * 100_000)


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "just text\n", "- a\n", "null\n", "---\n...\n", "a: \x1b\n"]
)
def test_what_is_no_mapping_is_refused(text: str) -> None:
    _error(text)


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = write_table(tmp_path) / "run.yaml"
    with path.open("wb") as out:
        out.truncate((1 << 20) + 1)
    assert error_of_reading(tmp_path).startswith(f"{path}: ")


def test_plain_data_keeps_its_kinds_and_lines() -> None:
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
@settings(max_examples=100, deadline=None)
def test_plain_data_is_read_as_it_was_written(value: Any) -> None:
    assert parse(PATH, yaml_text({"a": value}))[0] == {"a": value}


@given(
    st.integers(0, len(VALID)), st.integers(0, 40), st.text(alphabet="ab1 :-[]{}&*!'\"\n\t#,|>%@", max_size=6)
)
@settings(max_examples=200, deadline=None)
def test_a_damaged_file_is_read_or_refused_by_lines_that_name_it(at: int, removed: int, put: str) -> None:
    text = VALID[:at] + put + VALID[at + removed :]
    try:
        read_header(PATH, text)
    except TableError as error:
        assert all(line.startswith("run.yaml:") for line in str(error).split("\n"))
