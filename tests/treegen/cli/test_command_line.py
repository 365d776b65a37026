"""The command line itself: help, version, wrong use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from treegen_builders import treegen_command, write_project

from treegen.cli.main import main

Capture = pytest.CaptureFixture[str]


def _leaves(arguments: list[str], capsys: Capture) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as end:
        main(arguments)
    captured = capsys.readouterr()
    return end.value.code, captured.out, captured.err


WRONG = [
    [],
    ["bild"],
    ["build", "--chek"],
    ["build", "extra"],
    ["build", "--spec"],
    ["build", "--output", ""],
]
WRONG += [["import", "xls", "x"], ["import", "csv", ""], ["report", "--out", ""], ["build", "--jobs", "0"]]
WRONG += [["check", "--jobs", "\u00b2"], ["check", "--skip", "everything"], ["build", "ex\ntra\x1b[2J"]]


@pytest.mark.parametrize("arguments", WRONG)
def test_wrong_use_is_status_2_and_one_line(arguments: list[str], capsys: Capture) -> None:
    code, out, err = _leaves(arguments, capsys)
    assert (code, out) == (2, "") and err.startswith("treegen: ") and err.rstrip("\n").isprintable()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_printed_is_status_2_before_anything_is_written(tmp_path: Path) -> None:
    write_project(tmp_path)
    with Path("/dev/full").open("w") as full:
        done = treegen_command("build", cwd=tmp_path, stdout=full)
    assert not (tmp_path / "generated").exists()
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stderr.startswith("treegen: ")


def test_a_build_without_standard_output_writes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", None)  # as after >&-
    assert main(["build"]) == 0
    assert main(["check"]) == 0


def _into_closed_pipe(folder: Path, *command: str) -> tuple[int, str]:
    """The command's exit code and its standard error."""
    reader, writer = os.pipe()
    os.close(reader)
    done = treegen_command(*command, cwd=folder, stdout=writer)
    os.close(writer)
    return done.returncode, done.stderr


def test_a_closed_pipe_ends_a_command_quietly_but_files_are_written(tmp_path: Path) -> None:
    write_project(tmp_path)
    assert _into_closed_pipe(tmp_path, "build", "--check") == (141, "")
    assert not (tmp_path / "generated").exists()
    assert _into_closed_pipe(tmp_path, "build") == (0, "")
    assert (tmp_path / "generated").is_dir()


def test_a_terminal_without_unicode(tmp_path: Path) -> None:
    write_project(tmp_path)
    done = treegen_command("build", "--output", "out/ä", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")


def test_without_its_dependencies_it_says_what_to_install(tmp_path: Path) -> None:
    repository = str(Path(__file__).parents[3])
    program = "from treegen.cli import main; sys.exit(main.main(['build']))"
    code = f"import sys; sys.path.insert(0, {repository!r}); {program}"
    bare = [sys.executable, "-I", "-S", "-c", code]
    done = subprocess.run(bare, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "attn-kernels[treegen]" in done.stderr
