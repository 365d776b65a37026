"""Failures that random damage once found, each as a plain test."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from treegen_builders import DEVICE, build, contents, spec, write_project, write_table
from treegen_caches import cache, write_cache

from treegen.cli.main import main
from treegen.write.lock import Lock, read_lock

Refuse = Callable[..., str]
Capture = pytest.CaptureFixture[str]
DEVICES = ["/dev/zero", "/dev/full", "pipe"]


def _put(path: Path, what: str) -> None:
    path.unlink()
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(what)


@pytest.mark.parametrize("what", DEVICES)
def test_a_device_in_place_of_the_previous_module(tmp_path: Path, capsys: Capture, what: str) -> None:
    """Was read until memory ended, or for ever."""
    path = write_project(tmp_path)
    build(path)
    new = contents(tmp_path / "generated")
    _put(tmp_path / f"generated/scale/{DEVICE}.py", what)
    capsys.readouterr()
    assert build(path) == 0
    assert f"generated/scale/{DEVICE}.py: not a plain file." in capsys.readouterr().out
    assert contents(tmp_path / "generated") == new


@pytest.mark.parametrize("what", DEVICES)
def test_a_device_in_place_of_the_lock(tmp_path: Path, what: str) -> None:
    path = write_project(tmp_path)
    build(path)
    new = contents(tmp_path / "generated")
    _put(tmp_path / "generated/treegen.lock", what)
    assert read_lock(tmp_path / "generated") == Lock()
    assert build(path) == 0
    found = contents(tmp_path / "generated")
    assert json.loads(found.pop("treegen.lock") or b"")
    assert new.pop("treegen.lock") and found == new


@pytest.mark.parametrize("what", DEVICES)
@pytest.mark.parametrize("name", ["treegen.yaml", *(f"tables/h100/{n}" for n in ("run.yaml", "times.csv"))])
def test_a_device_in_place_of_input(tmp_path: Path, refusal: Refuse, name: str, what: str) -> None:
    path = write_project(tmp_path)
    _put(tmp_path / name, what)
    assert refusal(tmp_path, "build", "--spec", path).startswith(f"{tmp_path / name}: no")


def test_an_endless_file_in_place_of_a_module(tmp_path: Path, capsys: Capture) -> None:
    path = write_project(tmp_path)
    build(path)
    module = tmp_path / f"generated/scale/{DEVICE}.py"
    os.truncate(module, 1 << 40)
    capsys.readouterr()
    assert main(["build", "--spec", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"treegen: {module}: was not written by treegen")
    assert module.stat().st_size == 1 << 40


def test_an_endless_lock(tmp_path: Path, capsys: Capture) -> None:
    path = write_project(tmp_path)
    build(path)
    os.truncate(tmp_path / "generated/treegen.lock", 1 << 40)
    capsys.readouterr()
    assert main(["build", "--spec", str(path)]) == 2
    assert capsys.readouterr().err.endswith("/treegen.lock: larger than 64 MiB; remove it\n")
    assert (tmp_path / "generated/treegen.lock").stat().st_size == 1 << 40


WARNED = ["0xfor rows", "1if 1else 2", "'\\d'", "1or rows"]


@pytest.mark.parametrize("text", WARNED)
def test_an_expression_that_python_warns_of(
    tmp_path: Path, refusal: Refuse, recwarn: pytest.WarningsRecorder, text: str
) -> None:
    """The warning was a second line."""
    assert "derived.area: " in refusal(
        tmp_path, "build", "--spec", write_project(tmp_path, spec(derived={"area": text}))
    )
    assert not recwarn.list


@pytest.mark.parametrize("text", ["('\\d', '4', 'True', 'bf16', 'x')", "(0xfor x, '4')", "(1if 1else 3,)"])
def test_a_scenario_of_a_cache_that_python_warns_of(
    tmp_path: Path, refusal: Refuse, recwarn: pytest.WarningsRecorder, text: str
) -> None:
    content = cache()
    (first, *_), configs = content["cache"], content["cache"]
    content["cache"] = {text if key == first else key: config for key, config in configs.items()}
    write_cache(tmp_path / "caches", content)
    refusal(tmp_path, "import", "dejavu", tmp_path / "caches", "--to", tmp_path / "tables")
    assert not recwarn.list


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
def test_a_tuning_time_beyond_floating_point(tmp_path: Path, refusal: Refuse, number: str) -> None:
    write_cache(tmp_path / "caches", json.dumps(cache()).replace("12.6", number))
    line = refusal(tmp_path, "import", "dejavu", tmp_path / "caches", "--to", tmp_path / "tables")
    assert line.endswith(f"not valid JSON: '{number}' is not a number")


def test_a_time_of_a_cache_that_is_true(tmp_path: Path, refusal: Refuse) -> None:
    write_cache(tmp_path / "caches", json.dumps(cache()).replace("[0.01,", "[true,"))
    line = refusal(tmp_path, "import", "dejavu", tmp_path / "caches", "--to", tmp_path / "tables")
    assert line.endswith("has no time")


@pytest.mark.parametrize("deep", [33, 2000])
def test_an_output_folder_far_below(tmp_path: Path, refusal: Refuse, deep: int) -> None:
    """Was made, and no tool could remove it."""
    content = {**spec(), "output": "a/" * deep}
    line = refusal(tmp_path, "build", "--spec", write_project(tmp_path, content))
    assert line.endswith("is more than 32 folders deep")


def test_thousands_of_names(tmp_path: Path, refusal: Refuse) -> None:
    """Each was compared with all before it."""
    write_project(tmp_path)
    names = [f"f{k}" for k in range(40_000)]
    write_table(tmp_path / "tables/h100", features=[*names, "f0"])
    line = refusal(tmp_path, "build", "--spec", tmp_path / "treegen.yaml")
    assert line.endswith("features: names 'f0' twice")


@pytest.mark.parametrize("option", [[], ["--check"]])
def test_the_name_of_the_output_folder_is_printed_escaped(
    tmp_path: Path, capsys: Capture, option: list[str]
) -> None:
    path = write_project(tmp_path, {**spec(), "output": "gone\x1b[2J\n\u200b/out"})
    assert build(path, *option) in (0, 1)
    *_, line = capsys.readouterr().out.splitlines()
    assert "/gone\\x1b[2J\\n\\u200b/out: " in line and line.isprintable()
