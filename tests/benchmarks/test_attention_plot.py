"""benchmarks.attention.plot: relative times of runs of `compare`, and their picture."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from attn_kernels.measure.batches import Batch, decode, prefill
from benchmarks.attention import compare, plot
from benchmarks.attention.measure import Record, Records


def records(batch: Batch, wrong: str = "", **us: float) -> Records:
    return {name: Record(batch, 2, name, time_us=time, ok=name != wrong) for name, time in us.items()}


BATCHES = [
    records(decode(1, 64), ours=10.0, fa3=20.0, vllm=40.0),
    records(prefill(1, 64), ours=10.0, fa3=10.0, vllm=80.0),
    # A batch counts only if all computed it, and computed it right.
    records(decode(2, 64), ours=10.0, fa3=90.0),
    records(decode(3, 64), ours=10.0, fa3=90.0, vllm=10.0, wrong="vllm"),
]


def write_run(folder: Path, batches: list[Records], device: str = "NVIDIA H100") -> Path:
    folder.mkdir()
    (folder / "compare.json").write_text(compare.document({"environment": {"device": device}}, batches))
    return folder


def test_times_are_relative_to_flash_attention_3_by_kind_and_over_all(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", BATCHES)
    assert plot.ratios(json.loads((run / "compare.json").read_text())) == {
        ("decode", "ours"): [0.5],
        ("decode", "fa3"): [1.0],
        ("decode", "vllm"): [2.0],
        ("prefill", "ours"): [1.0],
        ("prefill", "fa3"): [1.0],
        ("prefill", "vllm"): [8.0],
        ("", "ours"): [0.5, 1.0],
        ("", "fa3"): [1.0, 1.0],
        ("", "vllm"): [2.0, 8.0],
    }


def test_a_picture_names_both_gpus_and_is_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs = [write_run(tmp_path / gpu, BATCHES, f"NVIDIA {gpu}") for gpu in ("H100", "H200")]
    first, second = tmp_path / "docs" / "first.svg", tmp_path / "second.svg"
    for picture in (first, second):
        assert plot.main([*map(str, runs), "--out", str(picture)]) == 0
    texts = list(ElementTree.fromstring(first.read_text()).itertext())
    assert {"NVIDIA H100", "NVIDIA H200", "0.71"} <= set(texts)  # 0.71: the mean over both kinds
    assert first.read_bytes() == second.read_bytes()


def test_a_run_that_cannot_be_drawn_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    no_rival = write_run(tmp_path / "no_rival", BATCHES[2:])
    for run in (no_rival, tmp_path / "missing"):
        with pytest.raises(SystemExit) as stopped:
            plot.main([str(run), "--out", str(tmp_path / "picture.svg")])
        assert stopped.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert str(run) in line
    assert not (tmp_path / "picture.svg").exists()
