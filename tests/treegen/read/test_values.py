"""`values`: words that integers of features and parameters stand for, in the spec and in tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from treegen_builders import (
    DEVICE,
    KERNEL,
    NARROW,
    WIDE,
    Row,
    build,
    error_of,
    imported,
    problem,
    spec,
    write_project,
    write_spec,
)

import tuning_table
from treegen.cli.main import main
from treegen.core.spec import KernelSpec
from treegen.read.spec import read_spec

SHAPES: list[Row] = [(rows, columns, kind) for rows in (1, 8, 64) for columns in (1, 8) for kind in (0, 1)]


def _read(folder: Path, values: Any) -> KernelSpec:
    return read_spec(write_spec(folder, spec(values=values))).kernels[KERNEL]


@pytest.mark.parametrize("listed", [["bf16", "fp8 e4m3"], {"fp8 e4m3": 1, "bf16": 0}])
def test_words_are_a_list_or_name_their_integers(tmp_path: Path, listed: Any) -> None:
    assert dict(_read(tmp_path, {"heads": listed}).values["heads"]) == {0: "bf16", 1: "fp8 e4m3"}


def test_a_tables_words_become_the_specs_integers(tmp_path: Path) -> None:
    sections = {"values": {"heads": {"bf16": 7, "fp16": 3}, "warps": {"flat": 5, "deep": 6}}}
    words = {"heads": ["fp16", "bf16"], "warps": ["flat", "deep"]}
    configs = ({**NARROW, "warps": 1}, {**WIDE, "warps": 0})
    found = problem(
        tmp_path,
        {**sections, "constraints": []},
        shapes=SHAPES,
        configs=configs,
        times=lambda row: [1.0, 2.0],
        values=words,
    )
    assert sorted(set(found.column("heads").tolist())) == [3, 7]
    by_scenario = dict(zip(found.scenarios, found.column("heads").tolist(), strict=True))
    assert (by_scenario["s001"], by_scenario["s002"]) == (3, 7)
    assert [dict(config.parameters) for config in found.configs] == [
        {"block": 16, "warps": 6},
        {"block": 128, "warps": 5},
    ]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, ["bf16", "fp16"]),
        ({"heads": ["bf16"]}, ["bf16", "fp16"]),
        ({"heads": ["bf16", "fp16"]}, ["bf16"]),
    ],
)
def test_a_word_of_the_table_that_the_spec_lacks_is_refused(
    tmp_path: Path, values: Any, words: list[str]
) -> None:
    message = error_of(lambda: problem(tmp_path, {"values": values}, shapes=SHAPES, values={"heads": words}))
    assert message.startswith(f"{tmp_path / 'tables/h100'}: ") and "heads" in message


def test_a_table_writer_takes_words_and_a_reader_returns_them(tmp_path: Path) -> None:
    table: dict[str, Any] = {
        "kernel": "k",
        "device": {"name": "GPU"},
        "timing": "once",
        "origin": {"tool": "mine"},
        "features": ["n", "dtype"],
        "configs": [{"id": "a", "block": 1}],
        "values": {"dtype": ["bf16", "fp16"]},
    }
    with tuning_table.create(tmp_path / "t", scenarios={"x": [4, "fp16"], "y": [4, 0]}, **table) as out:
        out.append("x", {"a": 1.0})
    found = tuning_table.read(tmp_path / "t")
    assert dict(found.header.words) == {"dtype": ("bf16", "fp16")}
    assert dict(found.scenarios) == {"x": (4, 1), "y": (4, 0)}
    with pytest.raises(tuning_table.TableError, match="dtype"):
        tuning_table.create(tmp_path / "u", scenarios={"x": [4, "fp32"]}, **table)
    with pytest.raises(tuning_table.TableError, match="dtype"):
        tuning_table.create(
            tmp_path / "u", scenarios={"x": [4, 1]}, **{**table, "values": {"dtype": ["<b>"]}}
        )
    assert not (tmp_path / "u").exists()


# In the output of commands: the second kind wants wide configs, whatever the area.
WORDS: dict[str, Any] = {"values": {"heads": ["bf16", "fp8"]}, "constraints": [], "derived": {}}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    def times(row: Row) -> list[float]:
        return [10.0, 30.0] if row[2] == 0 else [40.0, 20.0]

    path = write_project(tmp_path, spec(**WORDS), shapes=SHAPES * 3, configs=(NARROW, WIDE), times=times)
    assert build(path) == 0
    return path


def test_a_module_says_what_its_integers_stand_for(project: Path) -> None:
    text = (project.parent / f"generated/scale/{DEVICE}.py").read_text()
    assert "    heads: int,  # 0: bf16, 1: fp8\n" in text and "    if heads <= 0:\n" in text
    with imported(project.parent) as generated:
        choose = generated.scale.for_device("NVIDIA H100", "sm_90", "nvidia")
        assert [choose(rows=1, columns=1, heads=kind).block for kind in (0, 1)] == [16, 128]


def test_a_further_word_keeps_the_tree_and_another_meaning_does_not(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_spec(project.parent, spec(**{**WORDS, "values": {"heads": ["bf16", "fp8", "int8"]}}))
    assert main(["check", "--spec", str(project), "--skip", "fresh", "--skip", "compile"]) == 1
    capsys.readouterr()
    assert build(project) == 0
    assert "kept" in capsys.readouterr().out
    assert "# 0: bf16, 1: fp8, 2: int8\n" in (project.parent / f"generated/scale/{DEVICE}.py").read_text()
    write_spec(project.parent, spec(**{**WORDS, "values": {"heads": ["fp8", "bf16"]}}))
    assert main(["check", "--spec", str(project), "--skip", "fresh", "--skip", "compile"]) == 1


def test_explain_takes_and_prints_words(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["explain", "--spec", str(project), "scale", "rows=8", "columns=8"]
    capsys.readouterr()
    assert main([*shape, "heads=fp8"]) == 0
    by_word = capsys.readouterr().out
    assert main([*shape, "heads=1"]) == 0
    assert by_word == capsys.readouterr().out and "heads fp8" in by_word
