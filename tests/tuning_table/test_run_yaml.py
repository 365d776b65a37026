"""What run.yaml may hold; a mistake is an error that names the line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from table_builders import error_of_reading
from treegen_builders import NARROW, WIDE, line_of, run, write_table, yaml_text

import tuning_table
from tuning_table import TableError
from tuning_table.strict_yaml import parse

REQUIRED = ["format", "kernel", "device", "cells", "timing", "features", "configs"]
PROVENANCE = ["source_hash", "date"]
SUMMARY: dict[str, Any] = {
    "seconds": 5400.5,
    "scenarios": 9,
    "rows": 18,
    "cells_measured": 40,
    "cells_possible": 54,
    "cells_failed": 2,
    "noise_median": 0.004,
    "noise_p90": 0.02,
    "noise_p99": 1.0e-5,
    "finished": True,
    "failures": {"out of shared memory: 300000 bytes, limit 232448": 2, "no": 1},
}
COURSE: dict[str, Any] = {"scenario_set": "serving", "seed": -7, "strategy": "race", "summary": SUMMARY}


def _provenance(folder: Path, **changes: Any) -> Any:
    return tuning_table.read(write_table(folder, **changes)).header.provenance


@pytest.mark.parametrize("word", [*REQUIRED, *PROVENANCE])
def test_missing_word(tmp_path: Path, word: str) -> None:
    content = run()
    del content[word]
    path = write_table(tmp_path) / "run.yaml"
    path.write_text(yaml_text(content))
    what = f"lacks '{word}'" if word in REQUIRED else f"lacks {word} (or 'origin', if the table was imported)"
    assert error_of_reading(tmp_path) == f"{path}:1: {what}"


@pytest.mark.parametrize("course", [None, *COURSE])
def test_an_imported_table_states_its_origin_instead(tmp_path: Path, course: str | None) -> None:
    content = run(origin={"tool": "another tuner"}, **({course: COURSE[course]} if course else {}))
    for word in PROVENANCE:
        del content[word]
    path = write_table(tmp_path) / "run.yaml"
    path.write_text(yaml_text(content))
    if course is None:
        assert tuning_table.read(tmp_path).header.provenance["origin"] == {"tool": "another tuner"}
    else:
        line = line_of(path.read_text(), course + ":")
        what = "belongs to a run of our own; 'origin' says that the table was imported"
        assert error_of_reading(tmp_path) == f"{path}:{line}: {course}: {what}"


@pytest.mark.parametrize("count", [1, 1_000_000])
def test_the_ends_of_evaluated_configs(tmp_path: Path, count: int) -> None:
    origin = {"evaluated_configs": count}
    assert _provenance(tmp_path, origin=origin)["origin"] == origin


@pytest.mark.parametrize("count", [0, 1_000_001])
def test_beyond_the_ends_of_evaluated_configs(tmp_path: Path, count: int) -> None:
    write_table(tmp_path, origin={"evaluated_configs": count})
    assert error_of_reading(tmp_path).endswith("evaluated_configs: must be between 1 and 1,000,000")


def test_the_course_of_a_run_is_optional(tmp_path: Path) -> None:
    found = _provenance(tmp_path, **COURSE)
    assert {key: found[key] for key in COURSE} == COURSE
    for key in COURSE:
        found = _provenance(tmp_path, **{key: COURSE[key]})
        assert found[key] == COURSE[key] and not (set(COURSE) - {key}) & set(found)
    for key in SUMMARY:
        assert _provenance(tmp_path, summary={key: SUMMARY[key]})["summary"] == {key: SUMMARY[key]}


@pytest.mark.parametrize(
    ("key", "value"), [("seconds", 1), ("noise_p90", 0), ("noise_p90", 0.0), ("finished", False), ("rows", 0)]
)
def test_values_at_the_edge(tmp_path: Path, key: str, value: Any) -> None:
    assert _provenance(tmp_path, summary={key: value})["summary"] == {key: value}


def test_other_files_in_the_folder_are_ignored(tmp_path: Path) -> None:
    folder = write_table(tmp_path)
    before = tuning_table.read(folder)
    (folder / "failures.csv").write_text("not,\0a table")
    (folder / "dropped.csv").mkdir()
    assert tuning_table.read(folder) == before


def _config(**changes: Any) -> dict[str, Any]:
    return {key: value for key, value in {**WIDE, **changes}.items() if value is not ...}


WRONG: list[tuple[dict[str, Any], str | tuple[str, int], str]] = [
    ({"format": 2}, "format:", "must be 1"),
    ({"format": "1"}, "format:", "must be an integer, not '1'"),
    ({"format": True}, "format:", "must be an integer, not True"),
    ({"cells": "medians"}, "cells:", "must be one of measured, winners, not 'medians'"),
    ({"kernel": 7}, "kernel:", "must be text, not 7"),
    ({"device": {"arch": "sm_90"}}, "arch:", "lacks 'name'"),
    ({"device": "H100"}, "device:", "must be a mapping"),
    ({"timing": ["graph"]}, "timing:", "must be text or a mapping"),
    ({"origin": "a paper"}, "origin:", "must be a mapping"),
    ({"features": []}, "features:", "names no feature"),
    ({"features": "rows"}, "features:", "must be a list"),
    ({"features": ["rows", "columns", "rows"]}, "features:", "names 'rows' twice"),
    ({"features": ["rows", 5]}, "features:", "holds 5"),
    ({"features": ["rows", "lambda"]}, "features:", "'lambda' is a word of Python"),
    ({"features": ["match"]}, "features:", "'match' is a word of Python"),
    ({"features": ["min"]}, "features:", "'min' is a builtin of Python"),
    ({"features": ["__class__"]}, "features:", "'__class__' is a builtin"),
    ({"features": ["os.system"]}, "features:", "'os.system' is not a plain name"),
    ({"features": ['a"b']}, "features:", "is not a plain name"),
    ({"features": ["a\nb"]}, "features:", "'a\\nb' is not a plain name"),
    ({"features": ["rоws"]}, "features:", "is not a plain name"),  # noqa: RUF001
    ({"features": ["a" * 65]}, "features:", "is not a plain name"),
    ({"features": [""]}, "features:", "is not a plain name"),
    ({"configs": []}, "configs:", "names no config"),
    ({"configs": {"id": "a"}}, "configs:", "must be a list"),
    ({"configs": [dict(NARROW), "wide"]}, "configs:", "entry 2 is not a mapping"),
    ({"configs": [_config(id=...)]}, "- variant:", "lacks 'id'"),
    ({"configs": [dict(NARROW), _config(id="narrow")]}, ("narrow", 2), "names two configs"),
    ({"configs": [_config(id="a,b")]}, "a,b", "may hold letters, digits"),
    ({"configs": [_config(id="=1+1")]}, "=1+1", "may hold letters, digits"),
    ({"configs": [_config(id=7)]}, "id: 7", "must be text, not 7"),
    ({"configs": [_config(block=1.5)]}, "block: 1.5", "must be an integer, not 1.5"),
    ({"configs": [_config(block=True)]}, "block: true", "must be an integer, not True"),
    ({"configs": [_config(block=None)]}, "block: null", "must be an integer, not None"),
    ({"configs": [_config(block=-1)]}, "block: -1", "-1 is no launch parameter"),
    ({"configs": [_config(block=2**31)]}, "block: 2147", "2147483648 is no launch parameter"),
    ({"configs": [{**WIDE, "in": 1}]}, "id: wide", "parameter 'in' is a word of"),
    ({"configs": [dict(NARROW), _config(warps=...)]}, ("id:", 2), "other parameters than"),
    ({"configs": [dict(NARROW), _config(variant=...)]}, ("id:", 2), "all configs or"),
    ({"scenario_set": 5}, "scenario_set:", "scenario_set: must be text, not 5"),
    ({"strategy": ["race"]}, "strategy:", "strategy: must be text, not ['race']"),
    ({"seed": "1"}, "seed:", "seed: must be an integer, not '1'"),
    ({"seed": 1.0}, "seed:", "seed: must be an integer, not 1.0"),
    ({"seed": True}, "seed:", "seed: must be an integer, not True"),
    ({"seed": 2**62 + 1}, "seed:", "seed: must be an integer within 62 bits"),
    ({"seed": None}, "seed:", "seed: must be an integer, not None"),
    ({"summary": "done"}, "summary:", "summary: must be a mapping, not 'done'"),
    (
        {"summary": {"source_files": 1}},
        "source_files:",
        "summary.source_files: unknown word; known here: seconds, scen",
    ),
    ({"summary": {"seconds": 0}}, "seconds:", "summary.seconds: must be above 0, not 0"),
    ({"summary": {"seconds": -1.5}}, "seconds:", "summary.seconds: must be above 0, not -1.5"),
    ({"summary": {"seconds": float("inf")}}, "seconds:", "must be above 0, not inf"),
    ({"summary": {"seconds": float("nan")}}, "seconds:", "must be above 0, not nan"),
    ({"summary": {"seconds": "90 s"}}, "seconds:", "must be an integer or a number, not '90 s'"),
    ({"summary": {"seconds": True}}, "seconds:", "must be an integer or a number, not True"),
    ({"summary": {"noise_p99": -0.01}}, "noise_p99:", "summary.noise_p99: must be 0 or above, not -0.01"),
    ({"summary": {"noise_median": float("nan")}}, "noise_median:", "must be 0 or above, not nan"),
    ({"summary": {"noise_p90": None}}, "noise_p90:", "must be an integer or a number, not None"),
    ({"summary": {"rows": -1}}, "rows: -1", "summary.rows: -1 is no count"),
    ({"summary": {"rows": 1.5}}, "rows: 1.5", "summary.rows: must be an integer, not 1.5"),
    ({"summary": {"cells_failed": 2**63}}, "cells_failed:", "is no count"),
    ({"summary": {"finished": 1}}, "finished:", "summary.finished: must be true or false, not 1"),
    ({"summary": {"finished": "yes"}}, "finished:", "summary.finished: must be true or false, not 'yes'"),
    ({"summary": {"failures": ["slow"]}}, "failures:", "summary.failures: must be a mapping, not ['slow']"),
    ({"summary": {"failures": {"slow": "2"}}}, "slow:", "summary.failures.slow: must be an integer, not '2'"),
    ({"summary": {"failures": {"slow": -2}}}, "slow:", "summary.failures.slow: -2 is no count"),
    (
        {"device": {"name": "x", "cache_bytes": 1.5}},
        "cache_bytes:",
        "cache_bytes: must be an integer, not 1.5",
    ),
    ({"device": {"name": "x", "cache_bytes": -1}}, "cache_bytes:", "device.cache_bytes: -1 is no count"),
    ({"source_files": ["a.py"]}, "source_files:", "source_files: unknown word; known here: form"),
    ({"device": {"name": "H100", "vram": 80}}, "vram:", "device.vram: unknown word; known here: name, arch"),
]


@pytest.mark.parametrize(("changes", "needle", "says"), WRONG)
def test_wrong_value(
    tmp_path: Path, changes: dict[str, Any], needle: str | tuple[str, int], says: str
) -> None:
    path = write_table(tmp_path) / "run.yaml"
    path.write_text(yaml_text(run(**changes)))
    line = line_of(path.read_text(), *([needle] if isinstance(needle, str) else needle))
    message = error_of_reading(tmp_path)
    assert message.startswith(f"{path}:{line}: ") and says in message


def test_a_number_too_long_to_print(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "t")
    path = folder / "run.yaml"
    path.write_text(path.read_text().replace("block: 16", "block: 0x" + "f" * 5000))
    assert error_of_reading(folder).startswith(f"{path}:{line_of(path.read_text(), 'block:')}: ")


NO_PLAIN_DATA = [
    ("a: 1\nb: 2\na: 3\n", 3, "key 'a' appears twice (first in line 1)"),
    ("a:\n  b: 1\n  'b': 1\n", 3, "key 'b' appears twice (first in line 2)"),
    ("a: &x [1]\nb: *x\n", 2, "YAML aliases (*name) are not allowed"),
    ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, ""),
    ("a: &x b\n*x : 1\n", 2, "YAML aliases"),
    ("a: 1\nb: !!python/object/apply:os.system [id]\n", 2, "not allowed"),
    ("a: !config {}\n", 1, "YAML tag !config is not allowed"),
    ("a: !mine b\n", 1, "YAML tag !mine is not allowed"),
    ("a: !!binary aGk=\n", 1, "not allowed"),
    ("a: !!set {b}\n", 1, "not allowed"),
    ("a: !!omap [b: 1]\n", 1, "not allowed"),
    ("a:\n\tb: 1\n", 2, "not valid YAML"),
    ("a: b: c\n", 1, "not valid YAML"),
    ("%YAML 9.9\n---\na: 1\n", 1, "not valid YAML"),
    ("a: !!map b\n", 1, "cannot read the value 'b'"),
    ("a: 1\n!mine b: 1\n", 2, "a key must be a word"),
    ("a: 1\n? {b: 1}\n: 2\n", 2, "a key must be a word"),
    ("a: 1\n---\na: 2\n", 2, "not valid YAML: found another document"),
    ("a: [1\nb: 2\n", 2, "not valid YAML"),
    ("a: !!float '-'\n", 1, "cannot read the value '-'"),
    ("a: !!int ''\n", 1, "cannot read the value ''"),
    ("a: 0b_\n", 1, "cannot read the value '0b_'"),
    ("a: 1" + ":30" * 300_000 + "\n", 1, "cannot read the value '1:30"),
    ("a: " + "9" * 5000 + "\n", 1, "cannot read the value '999"),
    ('a: 1\nb: "\\U00110000"\n', 2, "there is no such character"),
    *((f"a: 1\nb: {word}\n", 2, f"write true or false, or quote '{word}'") for word in ("yes", "No", "True")),
]


@pytest.mark.parametrize(("text", "line", "says"), NO_PLAIN_DATA)
def test_yaml_beyond_plain_data(text: str, line: int, says: str) -> None:
    with pytest.raises(TableError) as caught:
        parse(Path("run.yaml"), text)
    assert str(caught.value).startswith(f"run.yaml:{line}: ") and says in str(caught.value)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- ", "? ", "[{a: "])
def test_deep_nesting_is_not_read_to_its_end(opening: str) -> None:
    with pytest.raises(TableError) as caught:
        parse(Path("run.yaml"), "a:\n  " + opening * 100_000)
    assert str(caught.value) in ("run.yaml: nested too deeply", "run.yaml:2: a key must be a word")


@pytest.mark.parametrize("text", ["", "# nothing\n", "just text\n", "- a\n- b\n", "null\n", "---\n...\n"])
def test_what_is_no_mapping(tmp_path: Path, text: str) -> None:
    path = write_table(tmp_path) / "run.yaml"
    path.write_text(text)
    assert error_of_reading(tmp_path) == f"{path}: must hold a mapping of keys to values"


@pytest.mark.parametrize("byte", ["\0", "\x07", "\x1b"])
def test_characters_that_are_no_text(byte: str) -> None:
    with pytest.raises(TableError) as caught:
        parse(Path("run.yaml"), f"a: 1\nb: {byte}\n")
    assert str(caught.value).startswith("run.yaml: not valid YAML: unacceptable character")
    assert "\n" not in str(caught.value)


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    path = write_table(tmp_path) / "run.yaml"
    with path.open("wb") as out:
        out.truncate((1 << 20) + 1)
    assert error_of_reading(tmp_path) == f"{path}: larger than 1 MiB"


def test_plain_data_keeps_its_kinds_and_lines() -> None:
    text = "\ufeffa: 1\nb: [x, 2, 0.5, true, null]\nc:\n  d: 2026-01-31 10:00:00\n  e: '7'\n"
    values, lines = parse(Path("run.yaml"), text)
    assert values == {"a": 1, "b": ["x", 2, 0.5, True, None], "c": {"d": "2026-01-31 10:00:00", "e": "7"}}
    assert (lines["b",], lines["b", 3], lines["c",], lines["c", None], lines["c", "e"]) == (2, 2, 3, 4, 5)
