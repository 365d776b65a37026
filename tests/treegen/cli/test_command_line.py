"""The command line itself: help, version, wrong use; and `treegen merge`."""

import os
import sys
from pathlib import Path

import pytest
from programs import REPOSITORY, python
from programs import start as start_program
from table_builders import VISITS, append, filled, start
from treegen_builders import write_project

from treegen.cli.main import main

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
def test_wrong_use_is_status_2_and_one_line(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    out, err = capsys.readouterr()
    assert (end.value.code, out) == (2, "")
    assert err.startswith("treegen: ") and err.rstrip("\n").isprintable()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_printed_is_status_2_before_anything_is_written(tmp_path):
    write_project(tmp_path)
    with Path("/dev/full").open("w") as full:
        done = python("-m", "treegen", "build", cwd=tmp_path, stdout=full)
    assert not (tmp_path / "generated").exists()
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and done.stderr.startswith("treegen: ")


def test_a_closed_pipe_ends_a_command_quietly_but_files_are_written(tmp_path):
    write_project(tmp_path)
    for command, status in (("build --check", 141), ("build", 0)):
        reader, writer = os.pipe()
        os.close(reader)
        done = python("-m", "treegen", *command.split(), cwd=tmp_path, stdout=writer)
        os.close(writer)
        assert (done.returncode, done.stderr) == (status, "")
        assert (tmp_path / "generated").is_dir() == (status == 0)


def test_an_ascii_terminal_and_no_standard_output(tmp_path, monkeypatch):
    write_project(tmp_path)
    command = ("-m", "treegen", "build", "--output", "out/ä")
    done = python(*command, cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdout", None)  # as after >&-
    assert main(["build"]) == main(["check"]) == 0


def test_no_figure_is_cut_on_a_terminal_that_can_do_little(tmp_path):
    spec = write_project(tmp_path)
    ours, theirs = os.openpty()
    with start_program("-m", "treegen", "build", "--spec", spec, stdout=theirs, TERM="dumb") as process:
        process.wait(timeout=300)
    printed = os.read(ours, 1 << 16).decode()
    os.close(ours)
    os.close(theirs)
    assert "scikit-learn" in printed and "\u2026" not in printed


def test_without_its_dependencies_it_says_what_to_install(tmp_path):
    program = "from treegen.cli import main; sys.exit(main.main(['build']))"
    code = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); {program}"
    done = python("-I", "-S", "-c", code, cwd=tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and "attn-kernels[treegen]" in done.stderr


def test_a_merge_prints_one_line(tmp_path, refusal, capsys):
    one, merged, taken = filled(tmp_path / "1"), tmp_path / "all", tmp_path / "taken"
    with start(tmp_path / "2", device={"name": "NVIDIA H200"}) as table:
        append(table, VISITS[0])
    taken.mkdir()
    (taken / "letter").touch()
    for tables, out, named in (
        ([one, tmp_path / "2"], merged, "'NVIDIA H200'"),
        ([tmp_path / "none"], merged, "/none"),
        ([one], Path("/"), ""),
        ([one], taken, "letter"),
    ):
        assert named in refusal(tmp_path, "merge", *tables, "--out", out)
    assert main(["merge", str(one), str(one), "--out", str(merged)]) == 0
    assert capsys.readouterr().out == f"{merged}: 3 rows added from 2 tables, 3 were there already\n"
