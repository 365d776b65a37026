"""Disk full, no permission, a kill at any moment: no file is half-written, and the next build mends all."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import DEVICE, REPOSITORY, build, contents, spec, write_project, write_spec

Refuse = Callable[..., str]


class Killed(BaseException):
    """Stands in for SIGKILL: nothing in treegen may catch it."""


def _full(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, "No space left on device")


def _after(calls: int, real: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """`real`, but the call after that many raises."""
    made = 0

    def stand_in(*arguments: Any, **options: Any) -> Any:
        nonlocal made
        made += 1
        if made > calls:
            raise error
        return real(*arguments, **options)

    return stand_in


def _stale(folder: Path) -> Path:
    """A project whose next build changes four files and adds a fifth."""
    path = write_project(folder)
    assert build(path) == 0
    tables = {DEVICE: "tables/h100", "nvidia": "tables/h100"}
    content = spec(features=["rows", "columns", "heads", "depth"], constraints=[], tables=tables)
    content["devices"]["nvidia"] = {"vendor": "nvidia"}
    return write_spec(folder, content)


@pytest.mark.parametrize("calls", range(4))
def test_a_disk_that_is_full_while_files_are_prepared(
    tmp_path: Path, refusal: Refuse, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    path = _stale(tmp_path)
    monkeypatch.setattr(
        os, "fsync", _after(calls, os.fsync, OSError(errno.ENOSPC, "No space left on device"))
    )
    assert refusal(tmp_path, "build", "--spec", path) == (
        f"{tmp_path}/generated: cannot be written: No space left on device"
    )


def test_a_disk_that_is_full_at_a_first_build_leaves_no_folder(
    tmp_path: Path, refusal: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_project(tmp_path)
    monkeypatch.setattr(os, "fsync", _after(3, os.fsync, OSError(errno.ENOSPC, "No space left on device")))
    refusal(tmp_path, "build", "--spec", path)
    assert not (tmp_path / "generated").exists()


def test_a_folder_that_may_not_be_written(
    tmp_path: Path, refusal: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _stale(tmp_path)

    def denied(*_: object, **__: object) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", denied)
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", denied)
    assert "cannot be written: Permission denied" in refusal(tmp_path, "build", "--spec", path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(tmp_path: Path, refusal: Refuse) -> None:
    path = _stale(tmp_path)
    (tmp_path / "generated/scale").chmod(0o555)
    try:
        assert "cannot be written: Permission denied" in refusal(tmp_path, "build", "--spec", path)
    finally:
        (tmp_path / "generated/scale").chmod(0o755)


def test_a_rename_that_fails_at_once(
    tmp_path: Path, refusal: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _stale(tmp_path)
    monkeypatch.setattr(Path, "replace", _full)
    monkeypatch.setattr(os, "replace", _full)
    refusal(tmp_path, "build", "--spec", path)


def test_a_rename_that_fails_later_is_still_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _stale(tmp_path)
    capsys.readouterr()
    with monkeypatch.context() as patch:
        failing = _after(2, Path.replace, OSError(errno.EIO, "Input/output error"))
        patch.setattr(Path, "replace", lambda *a: failing(*a))
        assert build(path) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Input/output error" in line
    assert not [name for name in contents(tmp_path) if ".treegen-" in name]


STEPS = [*(("fsync", k) for k in (0, 2, 4)), *(("replace", k) for k in (0, 1, 3, 4))]


@pytest.mark.parametrize(("step", "calls"), STEPS)
def test_after_a_kill_every_file_is_wholly_old_or_wholly_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, calls: int
) -> None:
    path = _stale(tmp_path / "killed")
    old = contents(tmp_path / "killed/generated")
    build(path, "--output", tmp_path / "new")
    new = contents(tmp_path / "new")
    assert sum(new[name] != old.get(name) for name in new) == 5
    with monkeypatch.context() as patch:
        if step == "fsync":
            patch.setattr(os, "fsync", _after(calls, os.fsync, Killed()))
        else:
            stand_in = _after(calls, Path.replace, Killed())
            patch.setattr(Path, "replace", lambda *a: stand_in(*a))
        with pytest.raises(Killed):
            build(path)
    found = contents(tmp_path / "killed/generated")
    for name in new:
        assert found.get(name) in (old.get(name), new[name])
    if step == "fsync":
        assert all(found.get(name) == old.get(name) for name in new)
    assert build(path) == 0
    left = {
        name: text
        for name, text in contents(tmp_path / "killed/generated").items()
        if ".treegen-" not in name
    }
    assert left == new


def test_a_kill_leaves_no_litter_after_the_next_build(tmp_path: Path) -> None:
    """A real SIGKILL, as nothing in the process can clean up after that."""
    write_project(tmp_path)
    code = """
import os, signal, treegen.cli
made, real = [], os.fsync
os.fsync = lambda file: made.append(real(file)) or len(made) < 3 or os.kill(os.getpid(), signal.SIGKILL)
treegen.cli.main(["build"])
"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [name for name in contents(tmp_path) if ".treegen-" in name]
    assert build(tmp_path / "treegen.yaml") == 0
    assert not [name for name in contents(tmp_path) if ".treegen-" in name]


def test_control_c_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _stale(tmp_path)
    before = contents(tmp_path)
    capsys.readouterr()
    monkeypatch.setattr(os, "fsync", _after(2, os.fsync, KeyboardInterrupt()))
    assert build(path) == 130
    assert capsys.readouterr().err == "treegen: interrupted; nothing half-written is left\n"
    assert contents(tmp_path) == before
