"""treegen build --check: 0 when fresh, 1 with a line for each file that is not, and nothing written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from treegen_builders import DEVICE, build, contents, spec, write_project, write_spec, write_table

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def fresh(tmp_path: Path, capsys: Capture) -> Path:
    path = write_project(tmp_path)
    assert build(path) == 0
    capsys.readouterr()
    return path


@pytest.fixture
def check(fresh: Path, capsys: Capture) -> Callable[[], tuple[int, list[str]]]:
    """Runs the check; returns its status and lines, with the output folder left out."""

    def run() -> tuple[int, list[str]]:
        before = contents(fresh.parent)
        status = build(fresh, "--check")
        assert contents(fresh.parent) == before
        captured = capsys.readouterr()
        assert captured.err == ""
        return status, captured.out.replace(f"{fresh.parent}/", "").splitlines()

    return run


STALE = "generated: stale; run `treegen build` and commit the result"
Check = Callable[[], tuple[int, list[str]]]


def test_fresh(check: Check) -> None:
    assert check() == (0, ["generated: up to date"])


def test_an_edited_module(fresh: Path, check: Check) -> None:
    module = fresh.parent / f"generated/scale/{DEVICE}.py"
    module.write_text(module.read_text().replace("if heads > 16:", "if heads > 17:"))
    number = module.read_text().splitlines().index("    if heads > 17:") + 1
    assert check() == (
        1,
        [
            f"generated/scale/{DEVICE}.py is stale: line {number} is 'if heads > 17:', "
            "a build gives 'if heads > 16:'",
            f"scale on {DEVICE}: the previous tree is not kept: generated/scale/{DEVICE}.py: "
            "is not what the last build wrote.",
            STALE,
        ],
    )


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda text: text + b"extra = 1\n", "is 'extra = 1', a build gives the end of the file"),
        (
            lambda text: text[: text.rindex(b"    warps")],
            "is the end of the file, a build gives 'warps: int'",
        ),
        (lambda text: text.replace(b"\n", b"\r\n"), "its line ends are not those that a build writes"),
        (lambda text: text.rstrip(b"\n"), "its line ends are not those that a build writes"),
        (lambda text: b"\xff", "is stale: line 1 is '\\ufffd', a build gives "),
    ],
)
def test_the_first_difference(fresh: Path, check: Check, edit: Callable[[bytes], bytes], says: str) -> None:
    path = fresh.parent / "generated/scale/config.py"
    path.write_bytes(edit(path.read_bytes()))
    status, lines = check()
    assert status == 1 and says in lines[0] and lines[1:] == [STALE]


def test_missing_files(fresh: Path, check: Check) -> None:
    (fresh.parent / "generated/scale/default.py").unlink()
    assert check() == (1, ["generated/scale/default.py is missing", STALE])
    (fresh.parent / "generated").rename(fresh.parent / "away")
    status, lines = check()
    assert status == 1 and len(lines) == 7 and all(line.endswith("is missing") for line in lines[:-1])


def test_a_module_of_a_device_that_left_the_spec(fresh: Path, check: Check) -> None:
    content = spec(tables={"nvidia_a100": "tables/h100"})
    content["devices"]["nvidia_a100"] = {"vendor": "nvidia"}
    write_spec(fresh.parent, content)
    status, lines = check()
    assert status == 1
    assert f"generated/scale/{DEVICE}.py belongs to no table of the spec any more" in lines
    assert "generated/scale/nvidia_a100.py is missing" in lines


def test_a_changed_table_shows_in_the_lock(fresh: Path, check: Check) -> None:
    write_table(fresh.parent / "tables/h100", date="2026-02-01")
    status, lines = check()
    assert (
        status == 1 and lines[0].startswith("generated/treegen.lock is stale: line ") and lines[1:] == [STALE]
    )


def test_foreign_files_are_ignored(fresh: Path, check: Check) -> None:
    (fresh.parent / "generated/README.md").write_text("mine")
    (fresh.parent / "generated/scale/mine.py").write_text("x = 1\n")
    (fresh.parent / "generated/scale/__pycache__").mkdir()
    assert check() == (0, ["generated: up to date"])


def test_bad_input_is_status_2_though_files_are_stale(fresh: Path, capsys: Capture) -> None:
    (fresh.parent / "tables/h100/times.csv").unlink()
    (fresh.parent / "generated/scale/default.py").unlink()
    assert build(fresh, "--check") == 2
    assert capsys.readouterr().out == ""
