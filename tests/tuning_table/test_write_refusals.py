"""What `create` and `append` refuse, and that they change nothing then."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from table_builders import RUN, VISITS, append, config, contents, filled, refusal, start

import tuning_table
from tuning_table import Failure, TableError, read_run
from tuning_table.table import Visit

M16, M32, M64 = RUN["configs"]
REMEDY = "choose another folder, or remove this one"


@pytest.mark.parametrize(
    ("visit", "what"),
    [
        (Visit("other", 1, {"M16": 1.0}), "other"),
        (Visit("decode-0", 0, {"M16": 1.0}), "repeat 0"),
        (Visit("decode-0", 1_000_000, {"M16": 1.0}), "repeat 1000000"),
        (Visit("decode-0", 1, {"M128": 1.0}), "M128"),
        (Visit("decode-0", 1, {}), "no config"),
        *((Visit("decode-0", 1, {"M16": t, "M32": Failure("x")}), "no time") for t in (0.0, 9e-4, 1e12)),
        *((Visit("decode-0", 1, {"M16": float(t)}), "no time") for t in ("inf", "nan", "-1")),
    ],
)
def test_rows_that_no_reader_would_take_are_not_written(tmp_path: Path, visit: Visit, what: str) -> None:
    with start(tmp_path) as table:
        before = contents(tmp_path)
        with pytest.raises(TableError, match=what):
            append(table, visit)
        assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"device": {**RUN["device"], "name": "x"}},
            "device.name 'NVIDIA H100 80GB HBM3', but this run has 'x'",
        ),
        ({"device": {"name": RUN["device"]["name"]}}, "device.arch 'sm_90', but this run has None"),
        ({"kernel": "other"}, "kernel 'attention', but this run has 'other'"),
        ({"timing": "events"}, "timing 'graph replay, cold L2: median of 3', but this run has 'events'"),
        ({"seed": 1}, "seed 0, but this run has 1"),
        ({"scenario_set": "serving (digest ff)"}, "but this run has 'serving (digest ff)'"),
        ({"features": ("num_seqs", "x")}, "features[1] 'max_seq_len', but this run has 'x'"),
        ({"configs": (M16, M32)}, "configs[2].id 'M64', but this run has None"),
        ({"configs": (M64, M32, M16)}, "configs[0].id 'M16', but this run has 'M64'"),
        ({"configs": (config("M16", num_warps=8), M32, M64)}, "configs[0].num_warps 4, but this run has 8"),
    ],
)
def test_another_run_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    filled(tmp_path)
    # A row that was cut off stays, too.
    with (tmp_path / "times.csv").open("a") as out:
        out.write("prefi")
    line = refusal(tmp_path, **change)
    assert line.startswith(f"{tmp_path}: holds a run with ") and line.endswith(f"{message}: {REMEDY}")


def test_a_scenario_that_changed_is_refused(tmp_path: Path) -> None:
    line = refusal(filled(tmp_path), scenarios={**RUN["scenarios"], "mixed-0": (8, -1)})
    assert line == f"{tmp_path}/scenarios.csv:4: holds 'mixed-0,7,-1', which this run does not list: {REMEDY}"


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("times.csv", "706.34", "fast", "times.csv:2: M16"),
        ("scenarios.csv", "2048", "2049", "scenarios.csv:2: holds 'decode-0,1,2049'"),
        ("failures.csv", "M32,", "", "failures.csv:2: has 3 cells"),
        ("failures.csv", "decode-0,2", "decode-0,02", "failures.csv:3: repeat must count from 1"),
        ("run.yaml", "seed: 0\n", "", "seed None, but this run has 0"),
        ("run.yaml", "torch: '2.11'", "torch: 2.11", "torch 2.11, but this run has '2.11'"),
    ],
)
def test_damage_is_refused(tmp_path: Path, name: str, old: str, new: str, message: str) -> None:
    path = filled(tmp_path) / name
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    assert message in refusal(tmp_path)


@pytest.mark.parametrize("name", ["times.csv", "scenarios.csv"])
def test_a_missing_file_is_refused(tmp_path: Path, name: str) -> None:
    (filled(tmp_path) / name).unlink()
    assert name in refusal(tmp_path)


def test_rows_whose_run_is_missing_are_not_overwritten(tmp_path: Path) -> None:
    for visit in (VISITS[0], VISITS[1]):
        folder = filled(tmp_path / visit.scenario, visit)
        (folder / "run.yaml").unlink()
        assert "run.yaml" in refusal(folder)


def test_folders_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert "notes.txt" in refusal(tmp_path)
    with pytest.raises(TableError, match="Not a directory"):
        start(tmp_path / "notes.txt")
    with pytest.raises(TableError, match="Not a directory"):
        start(tmp_path / "notes.txt" / "table")
    with pytest.raises(TableError, match=r"run.yaml: no such file"):
        read_run(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(TableError, match="Permission denied"):
            start(tmp_path / "table")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": ()}, "run.yaml: features: names no feature"),
        ({"configs": ()}, "run.yaml: configs: names no config"),
        ({"configs": (config("M 16"),)}, "run.yaml: configs[0].id: 'M 16' may hold"),
        ({"configs": (M16, config("M32", tile_size=1))}, "configs[1]: has other parameters than M16"),
        ({"configs": (config("M16", block_m=-1),)}, "configs[0].block_m: -1 is no launch parameter"),
        ({"device": {"name": "x", "colour": "red"}}, "device.colour: unknown word"),
        ({"colour": "red"}, "colour: unknown word"),
        ({"timing": {"unit": object()}}, "run.yaml: cannot be written: "),
        ({"scenarios": {}}, "scenarios.csv: holds no scenario"),
        ({"scenarios": {"a b": (1, 1)}}, "scenarios.csv:2: scenario id 'a b'"),
        ({"scenarios": {"a": (1, 1 << 63)}}, "scenarios.csv:2: max_seq_len must be an integer"),
        ({"scenarios": {"a": (1, 1.5)}}, "scenarios.csv:2: max_seq_len must be an integer"),
    ],
)
def test_tables_that_no_reader_would_take_are_not_created(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    assert message in refusal(tmp_path / "table", **change)
    assert not (tmp_path / "table").exists()


def test_without_provenance_the_origin_must_be_stated(tmp_path: Path) -> None:
    keys = ("kernel", "device", "timing", "features", "configs", "scenarios")
    arguments = {key: RUN[key] for key in keys}
    with pytest.raises(TableError, match="lacks source_hash, date"):
        tuning_table.create(tmp_path, **arguments)
    tuning_table.create(tmp_path, **arguments, origin={"tool": "my own"}).close()


def test_without_pyyaml_the_error_names_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert refusal(tmp_path / "table").endswith("run.yaml: needs PyYAML: pip install pyyaml")
    assert not (tmp_path / "table").exists()
