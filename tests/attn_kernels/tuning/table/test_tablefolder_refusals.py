"""What a table folder does not go on with, and rows and headers that it does not take."""

import dataclasses
import os
import sys
from pathlib import Path

import pytest
from tablefolder_builders import (
    DATE,
    HEADER,
    SCENARIOS,
    VISITS,
    config,
    contents,
    filled,
    refusal,
    start,
)

from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.results import Failure, Visit
from attn_kernels.tuning.table.folder import TableFolder, read_folder


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
        with pytest.raises(TuningError, match=what):
            table.append(visit)
        assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            {"device": {"name": "NVIDIA H200"}},
            "holds a run on NVIDIA H100 80GB HBM3, but this GPU is NVIDIA H200",
        ),
        ({"device": {**HEADER.device, "multiprocessors": 114}}, "multiprocessors 132, but this GPU has 114"),
        ({"kernel": "other"}, "kernel attention, but this run has other"),
        ({"source_hash": "1" * 64}, f"{'0' * 64}, but this run has {'1' * 64}"),
        ({"torch": "2.13"}, "torch 2.11, but this run has 2.13"),
        ({"triton": "3.9"}, "Triton 3.6.0, but this run has 3.9"),
        ({"driver": "560"}, "driver 550.54, but this run has 560"),
        ({"timing": "events"}, "median of 3, but this run has events"),
        ({"scenario_set": "recorded"}, "serving (small), but this run has recorded"),
        ({"scenarios_digest": "ff"}, "sha256:12ab, but this run has ff"),
        ({"seed": 1}, "seed 0, but this run has 1"),
        ({"strategy": "racing"}, "strategy full, but this run has racing"),
        ({"features": ("num_seqs", "x")}, "num_seqs max_seq_len, but this run has num_seqs x"),
        ({"configs": HEADER.configs[:2]}, "a run of 3 configs, but this run has 2"),
        ({"configs": HEADER.configs[::-1]}, "config 1 is M16, but this run has M64"),
        (
            {"configs": (config("M16", num_warps=8), *HEADER.configs[1:])},
            "M16 is qblock block_m=16 num_warps=4, but this run has qblock block_m=16 num_warps=8",
        ),
    ],
)
def test_another_run_is_refused(tmp_path: Path, change: dict[str, object], told: str) -> None:
    filled(tmp_path)
    # Even where a row was cut off, nothing may be mended for a run that is not this one.
    with (tmp_path / "times.csv").open("a") as out:
        out.write("prefi")
    line = refusal(tmp_path, dataclasses.replace(HEADER, **change))  # type: ignore[arg-type]
    assert told in line
    assert line.endswith("choose another --out, or remove the folder")


@pytest.mark.parametrize(
    ("scenarios", "told"),
    [
        ([*SCENARIOS[:2], ("mixed-0", (8, -1))], "scenarios.csv:4: holds 'mixed-0,7,-1', but"),
        (SCENARIOS[:2], "scenarios.csv:4: holds 'mixed-0,7,-1', but"),
        ([*SCENARIOS, ("more", (1, 1))], "scenarios.csv:5: holds '', but this run has 'more,1,1'"),
    ],
)
def test_other_scenarios_are_refused(
    tmp_path: Path, scenarios: list[tuple[str, tuple[int, int]]], told: str
) -> None:
    filled(tmp_path)
    before = contents(tmp_path)
    with pytest.raises(TuningError) as caught:
        TableFolder.open(tmp_path, HEADER, scenarios, DATE)
    assert told in str(caught.value)
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "old", "new", "told"),
    [
        ("times.csv", "706.34", "fast", "times.csv:2: M16"),
        ("times.csv", "706.34", "0", "times.csv:2: M16"),
        ("times.csv", "706.34", "nan", "times.csv:2: M16"),
        ("times.csv", "706.34,", "", "times.csv:2: has 4 cells, not 5"),
        ("times.csv", "decode-0,1", "decode-1,1", "times.csv:3: scenario 'decode-1'"),
        ("times.csv", "decode-0,1", "decode-0,2", "times.csv:4: scenario decode-0 repeat 2 is there twice"),
        ("times.csv", "decode-0,1", "decode-0,01", "times.csv:3: repeat"),
        ("times.csv", "5.1234", "inf", "times.csv:3: no config"),
        ("times.csv", "M32", "M33", "times.csv:1"),
        ("times.csv", "decode-0,1", "\ndecode-0,1", "times.csv:3"),
        ("scenarios.csv", "2048", "2049", "scenarios.csv:2: holds 'decode-0,1,2049'"),
        ("scenarios.csv", "2048", "x", "scenarios.csv:2"),
        ("failures.csv", "M32,", "", "failures.csv:2"),
        ("failures.csv", "reason\n", "\n", "failures.csv:1"),
        ("run.yaml", "cells: measured", "cells: winners", "cells must be measured"),
        ("run.yaml", "seed: 0\n", "", "seed must be an integer"),
        ("run.yaml", "torch: '2.11'", "torch: 2.11", "torch must be text"),
        ("run.yaml", "format: 1", "format: [", "run.yaml:"),
        ("run.yaml", "block_m: 32", "block_n: 32", "M32 has other parameters than M16"),
    ],
)
def test_damage_is_refused(tmp_path: Path, name: str, old: str, new: str, told: str) -> None:
    path = filled(tmp_path) / name
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    assert told in refusal(tmp_path)


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
    with pytest.raises(TuningError, match="Not a directory"):
        start(tmp_path / "notes.txt")
    with pytest.raises(TuningError, match="Not a directory"):
        start(tmp_path / "notes.txt" / "table")
    with pytest.raises(TuningError, match="holds no table"):
        read_folder(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(TuningError, match="Permission denied"):
            start(tmp_path / "table")
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"features": ()}, "at least one feature"),
        ({"configs": ()}, "one config"),
        ({"configs": (config("M 16"),)}, "M 16"),
        ({"configs": (config("M16"), config("M16"))}, "M16 is there twice"),
        ({"configs": (config("M16"), config("M32", tile_size=1))}, "other parameters"),
        ({"configs": (config("M16", block_m=-1),)}, "block_m=-1"),
        ({"scenarios_digest": "a b"}, "digest"),
        ({"device": {"name": "x", "colour": "red"}}, "device"),
    ],
)
def test_headers_that_no_reader_would_take_are_refused(
    tmp_path: Path, change: dict[str, object], told: str
) -> None:
    assert told in refusal(tmp_path / "table", dataclasses.replace(HEADER, **change))  # type: ignore[arg-type]
    assert not (tmp_path / "table").exists()


@pytest.mark.parametrize(
    "scenarios", [[], [("a b", (1, 1))], [("a", (1,))], [("a", (1, 1 << 63))], [("a", (1, 1)), ("a", (1, 2))]]
)
def test_scenarios_that_no_reader_would_take_are_refused(
    tmp_path: Path, scenarios: list[tuple[str, tuple[int, ...]]]
) -> None:
    with pytest.raises(TuningError, match="scenario"):
        TableFolder.open(tmp_path / "table", HEADER, scenarios, DATE)
    assert not (tmp_path / "table").exists()


def test_without_pyyaml_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert "pip install 'attn-kernels[tune]'" in refusal(tmp_path / "table")
    assert not (tmp_path / "table").exists()
