"""`treegen check` of small projects: what each check says of a project that is damaged in one place."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import pytest
from treegen_builders import (
    DEVICE,
    KERNEL,
    build,
    contents,
    spec,
    write_project,
    write_table,
)

from treegen.cli import check as check_command
from treegen.cli.parsers import FINE, FOUND, Parser
from treegen.core.errors import InputError
from treegen.review.check.report import CheckReport, lines, verdict

MODULE = f"generated/{KERNEL}/{DEVICE}.py"
FINE_LINES = """\
tables       1 table of the spec, 0 beside them, 9 scenarios
modules      2 modules, 4 leaves
constraints  2 constraints proved at 2 leaves; 2 more launch the fallback and are exempt
code         not run: the spec names no hook for scale
fresh        generated: 6 files of a build
compile      not run: the spec names no hook for scale
treegen.yaml: no problem; not all was run of code, compile
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A built project that is the current folder."""
    monkeypatch.chdir(tmp_path)
    assert build(write_project(tmp_path)) == 0
    capsys.readouterr()
    return tmp_path


def check(*options: str) -> int:
    parser = Parser(prog="treegen")
    check_command.add(parser.add_subparsers())
    chosen: argparse.Namespace = parser.parse_args(["check", *options])
    return int(chosen.run(chosen))


def section(out: str, name: str) -> list[str]:
    """A check's line and its problems."""
    start, *rest = out[out.index(f"{name:<12} ") :].splitlines()
    return [start, *(line for line in rest[: next(i for i, s in enumerate(rest) if not s.startswith(" "))])]


def test_all_is_well_and_nothing_is_written(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(project)
    assert check() == FINE
    out, err = capsys.readouterr()
    assert out == FINE_LINES
    assert [line.partition(":")[0] for line in err.splitlines()] == list(check_command.CHECKS)
    assert contents(project) == before


def test_strict_wants_all_checks(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--strict") == FOUND
    assert capsys.readouterr().out == FINE_LINES
    assert check("--strict", "--skip", "code", "--skip", "compile") == FINE


def test_skipping(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skipped = [name for name in check_command.CHECKS if name != "modules"]
    assert check(*(word for name in skipped for word in ("--skip", name))) == FINE
    assert capsys.readouterr().out.splitlines() == [
        "modules      2 modules, 4 leaves",
        f"treegen.yaml: no problem; skipped {', '.join(skipped)}",
    ]


def test_a_table_of_the_spec_that_cannot_be_read(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    times = project / "tables/h100/times.csv"
    times.write_text(times.read_text().replace("40.0", "fast", 1))
    assert check() == FOUND
    out = capsys.readouterr().out
    line, problem = section(out, "tables")
    assert line == "tables       1 table of the spec, 0 beside them, 0 scenarios; 1 problem"
    assert problem.startswith("    tables/h100/times.csv:")
    assert "'fast'" in problem
    assert section(out, "fresh") == ["fresh        not run: a table of the spec cannot be used"]
    assert section(out, "constraints") == FINE_LINES.splitlines()[2:3]
    assert out.splitlines()[-1] == "treegen.yaml: 1 problem; not all was run of code, fresh, compile"


def test_a_table_beside_those_of_the_spec(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(project / "tables/second")
    (project / "tables/notes").mkdir()
    assert check() == FINE
    assert section(capsys.readouterr().out, "tables") == [
        "tables       1 table of the spec, 1 beside them, 18 scenarios"
    ]
    (project / "tables/second/scenarios.csv").unlink()
    assert check() == FOUND
    out = capsys.readouterr().out
    assert section(out, "tables")[1] == "    tables/second/scenarios.csv: no such file"
    assert section(out, "fresh") == FINE_LINES.splitlines()[4:5]


def test_a_table_that_does_not_fit_the_spec(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_project(project, spec(constraints=["block > 1000"]))
    assert check() == FOUND
    out = capsys.readouterr().out
    assert section(out, "tables")[1].startswith(f"    for {KERNEL} on {DEVICE}: tables/h100: the constraints")
    assert section(out, "fresh") == ["fresh        not run: a table of the spec cannot be used"]


def test_stale_modules(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = project / "generated/treegen.lock"
    lock.write_text(lock.read_text().replace('"leaves": 3', '"leaves": 4'))
    assert check() == FOUND
    (line, problem) = section(capsys.readouterr().out, "fresh")
    assert line == "fresh        generated: 6 files of a build; 1 problem"
    assert problem.startswith("    generated/treegen.lock is stale: line ")


def test_a_file_in_the_place_of_a_module(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / MODULE).write_text("choose = None\n")
    assert check() == FOUND
    out = capsys.readouterr().out
    assert f"    {MODULE} was not written by treegen" in section(out, "fresh")
    assert section(out, "modules")[1].startswith(f"    {MODULE}:1: ")
    for name in ("constraints", "compile"):
        assert section(out, name) == [f"{name:<12} not run: a module cannot be read"]


def test_a_missing_module(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / MODULE).unlink()
    assert check("--skip", "fresh") == FOUND
    assert section(capsys.readouterr().out, "modules")[1] == f"    {MODULE}: no such file"


def test_the_module_of_another_device(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(project / MODULE, project / f"generated/{KERNEL}/default.py")
    assert check("--skip", "fresh") == FOUND
    problem = f"    generated/{KERNEL}/default.py: is the module of another device"
    assert section(capsys.readouterr().out, "modules")[1:] == [problem]


def test_modules_that_import_something(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = project / f"generated/{KERNEL}"
    config = package / "config.py"
    config.write_text(config.read_text() + "\n\nimport socket\nfrom os import path\n")
    (package / "extra.py").write_text("from .config import Config\nfrom collections.abc import Callable\n")
    assert check("--skip", "fresh") == FOUND
    end = len(config.read_text().splitlines())
    assert section(capsys.readouterr().out, "modules")[1:] == [
        f"    generated/{KERNEL}/config.py: is not what treegen prints; `treegen build` rewrites it",
        f"    generated/{KERNEL}/config.py:{end - 1}: imports socket",
        f"    generated/{KERNEL}/config.py:{end}: imports os",
        f"    generated/{KERNEL}/extra.py: no table of the spec has such a module",
    ]


def test_a_guard_that_the_constraint_does_not_want_any_more(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The modules are those of `block >= heads`."""
    write_project(project, spec(constraints=["block >= 2 * heads"]))
    assert check("--skip", "fresh") == FOUND
    line, *problems = section(capsys.readouterr().out, "constraints")
    assert line.startswith("constraints  1 constraint proved at 2 leaves; ")
    assert len(problems) == 1
    assert problems[0].startswith(f"    {KERNEL} on {DEVICE}: PLAIN_B16_W2, launched at ")
    assert problems[0].endswith(" does not hold at rows=1 columns=1 heads=16")


def test_bad_input_is_no_finding(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such spec"):
        check("--spec", str(tmp_path / "none.yaml"))


@pytest.mark.parametrize("jobs", ["0", "-1", "two", "1" * 10, "²"])
def test_wrong_use(jobs: str, capsys: pytest.CaptureFixture[str]) -> None:
    for options in (["--jobs", jobs], ["--skip", "everything"]):
        with pytest.raises(SystemExit) as ended:
            check(*options)
        assert ended.value.code == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_what_comes_from_outside_stays_on_its_line() -> None:
    told = list(lines("code", CheckReport("a\nb", ("c\x1b[2Jd",), ("e\rf",))))
    assert told == ["code         a\\nb; 1 problem; not run: e\\rf", "    c\\x1b[2Jd"]


def test_the_verdict_counts() -> None:
    reports = {"tables": CheckReport("x", ("one", "two")), "code": CheckReport(not_run=("no",))}
    assert verdict(reports, []) == "2 problems; not all was run of code"
