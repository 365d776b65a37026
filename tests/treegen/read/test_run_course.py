"""What run.yaml may say of the course of a run: optional, kept, and read as strictly as everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from treegen_builders import error_of, line_of, run, write_table, yaml_text

from treegen.read.table_file import read_table

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


def test_the_course_is_kept(tmp_path: Path) -> None:
    table = read_table(write_table(tmp_path / "t", **COURSE))
    assert {key: table.provenance[key] for key in COURSE} == COURSE


@pytest.mark.parametrize("key", COURSE)
def test_each_word_alone(tmp_path: Path, key: str) -> None:
    table = read_table(write_table(tmp_path / "t", **{key: COURSE[key]}))
    assert table.provenance[key] == COURSE[key] and not (set(COURSE) - {key}) & set(table.provenance)


@pytest.mark.parametrize("key", SUMMARY)
def test_each_word_of_the_summary_alone(tmp_path: Path, key: str) -> None:
    table = read_table(write_table(tmp_path / "t", summary={key: SUMMARY[key]}))
    assert table.provenance["summary"] == {key: SUMMARY[key]}


@pytest.mark.parametrize(
    ("key", "value"), [("seconds", 1), ("noise_p90", 0), ("noise_p90", 0.0), ("finished", False), ("rows", 0)]
)
def test_values_at_the_edge(tmp_path: Path, key: str, value: Any) -> None:
    assert read_table(write_table(tmp_path / "t", summary={key: value})).provenance["summary"] == {key: value}


def test_the_cache_of_the_device(tmp_path: Path) -> None:
    device = {"name": "NVIDIA H100", "cache_bytes": 52428800}
    assert read_table(write_table(tmp_path / "t", device=device)).provenance["device"] == device


WRONG: list[tuple[dict[str, Any], str, str]] = [
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
        "summary: unknown word 'source_files'; known here: sec",
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
    ({"source_files": ["a.py"]}, "source_files:", "unknown word 'source_files'"),
]


@pytest.mark.parametrize(("changes", "needle", "says"), WRONG)
def test_wrong_word(tmp_path: Path, changes: dict[str, Any], needle: str, says: str) -> None:
    folder = write_table(tmp_path / "t", **changes)
    line = line_of((folder / "run.yaml").read_text(), needle)
    message = error_of(read_table, folder)
    assert message.startswith(f"{folder / 'run.yaml'}:{line}: ") and says in message


@pytest.mark.parametrize("key", COURSE)
def test_an_imported_table_has_no_course(tmp_path: Path, key: str) -> None:
    folder = write_table(tmp_path / "t")
    path = folder / "run.yaml"
    path.write_text(yaml_text(run(origin={"tool": "another"}, **{key: COURSE[key]})))
    assert error_of(read_table, folder) == (
        f"{path}:{line_of(path.read_text(), key + ':')}: {key}: belongs to a run of our own; 'origin' says "
        "that the table was imported"
    )


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "True", "FALSE", "Yes"])
def test_booleans_are_true_and_false_only(tmp_path: Path, word: str) -> None:
    folder = write_table(tmp_path / "t", summary={"finished": True})
    path = folder / "run.yaml"
    path.write_text(path.read_text().replace("finished: true", f"finished: {word}"))
    line = line_of(path.read_text(), "finished:")
    assert error_of(read_table, folder) == f"{path}:{line}: write true or false, or quote '{word}'"


def test_other_files_in_the_folder_are_ignored(tmp_path: Path) -> None:
    folder = write_table(tmp_path / "t")
    before = read_table(folder)
    (folder / "failures.csv").write_text("not,\0a table")
    (folder / "dropped.csv").mkdir()
    assert read_table(folder).provenance == before.provenance
