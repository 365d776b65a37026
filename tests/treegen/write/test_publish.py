"""Kills, full disks and missing rights: a build leaves the old folder or the new one, and loses no file."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import DEVICE, build, contents, planted, spec, write_project, write_spec, write_table

from treegen import build as compiler
from treegen.core.errors import InputError
from treegen.emit.templating import MARK
from treegen.write import output_folder
from treegen.write.files import write_files
from treegen.write.output_folder import publish

Refuse = Callable[..., str]
Contents = dict[str, bytes | None]
NEW = f'"""New. {MARK}"""\n'
OLD = NEW.replace("New", "Old")
BEFORE = dict.fromkeys(
    ("__init__.py", "k/__init__.py", "k/config.py", "k/a.py", "k/b.py", "treegen.lock"), OLD
)
AFTER = {**dict.fromkeys(BEFORE, NEW), "k/__init__.py": OLD, "k/in_kernel/a.py": NEW}
del AFTER["k/b.py"]
FOREIGN = {"notes.md": "mine", "k/mine.py": "x = 1\n", "other/deep/data": "mine"}


def _old_folder(folder: Path) -> Path:
    """An output folder of a build, with files of others in it."""
    publish(folder, BEFORE)
    for name, text in FOREIGN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "k/link").symlink_to("mine.py")
    return folder


def _files(folder: Path) -> dict[str, str]:
    return {name: text.decode() for name, text in contents(folder).items() if text is not None}


LINKED = {"k/link": "x = 1\n"}


def _killed_after(steps: int, folder: Path, files: Mapping[str, str]) -> bool:
    """Publish in another process that gets a real SIGKILL after so many changes; whether it came to that."""
    child = os.fork()
    if child == 0:
        left = iter(range(steps))

        def count(event: str, arguments: tuple[Any, ...]) -> None:
            writes = event == "open" and isinstance(arguments[1], str) and set("wx") & set(arguments[1])
            changes = (
                "os.link",
                "os.mkdir",
                "os.rename",
                "os.remove",
                "os.rmdir",
                "os.symlink",
                "ctypes.dlsym",
            )
            if (writes or event in changes) and next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        publish(folder, files)
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


def _kills(tmp_path: Path, files: Mapping[str, str]) -> Iterator[Path]:
    """The folder after a kill at each step of publishing, until no kill is left."""
    for steps in itertools.count():
        folder = _old_folder(tmp_path / str(steps) / "generated")
        if not _killed_after(steps, folder, files):
            assert steps >= 25
            return
        yield folder


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Does not wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.mark.usefixtures("fast")
def test_a_kill_at_any_step_leaves_the_old_folder_or_the_new_one(tmp_path: Path) -> None:
    seen = set()
    for folder in _kills(tmp_path, AFTER):
        found = _files(folder)
        assert found in ({**BEFORE, **FOREIGN, **LINKED}, {**AFTER, **FOREIGN, **LINKED})
        seen.add("k/b.py" in found)
        publish(folder, AFTER)
        assert _files(folder) == {**AFTER, **FOREIGN, **LINKED} and (folder / "k/link").is_symlink()
        assert [path.name for path in folder.parent.iterdir()] == ["generated"]
    assert seen == {True, False}


@pytest.mark.usefixtures("fast")
def test_a_kill_of_a_first_build_leaves_nothing_or_all(tmp_path: Path) -> None:
    for steps in itertools.count():
        folder = tmp_path / str(steps) / "generated"
        folder.parent.mkdir()
        killed = _killed_after(steps, folder, AFTER)
        assert not folder.exists() or _files(folder) == AFTER
        publish(folder, AFTER)
        assert _files(folder) == AFTER and len(list(folder.parent.iterdir())) == 1
        if not killed:
            return


@pytest.mark.parametrize("moment", range(4))
def test_a_build_that_is_killed_is_completed_by_the_next(tmp_path: Path, moment: int) -> None:
    """The command itself, killed when it starts to fit, to write, to exchange folders and to clean up."""
    path = _stale(tmp_path)
    old = contents(tmp_path / "generated")
    child = os.fork()
    if child == 0:
        places = [
            (compiler, "refit"),
            (output_folder, "write_file"),
            (output_folder, "_exchange"),
            (shutil, "rmtree"),
        ]
        setattr(*places[moment], lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        build(path, "--jobs", "1")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    found = contents(tmp_path / "generated")
    assert build(path) == 0
    assert found in (old, contents(tmp_path / "generated")) and (found == old) == (moment < 3)
    assert build(path, "--check") == 0
    assert not list(tmp_path.glob(".treegen-*"))


def _refuse(*_: object) -> None:
    raise OSError("the folders cannot change places")


def test_where_folders_cannot_change_places_files_are_replaced_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _old_folder(tmp_path / "generated")
    monkeypatch.setattr(output_folder, "_exchange", _refuse)
    assert publish(folder, AFTER) == (5, 1)
    assert _files(folder) == {**AFTER, **FOREIGN, **LINKED}
    assert [path.name for path in tmp_path.iterdir()] == ["generated"]


def test_unchanged_files_and_files_of_others_are_the_same_files(tmp_path: Path) -> None:
    folder = _old_folder(tmp_path / "generated")
    names = ["k/__init__.py", *FOREIGN]
    before = {name: (folder / name).stat() for name in names}
    assert publish(folder, AFTER) == (5, 1)
    for name, old in before.items():
        new = (folder / name).stat()
        assert (new.st_ino, new.st_mtime_ns, new.st_nlink) == (old.st_ino, old.st_mtime_ns, 1)
    everything = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert publish(folder, AFTER) == (0, 0)
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == everything


@pytest.mark.parametrize("umask", [0o027, 0o002])
def test_files_and_folders_are_readable_by_everyone_the_umask_allows(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        publish(tmp_path / "generated", BEFORE)
        publish(tmp_path / "generated", AFTER)
    finally:
        os.umask(before)
    for path in (tmp_path / "generated", *(tmp_path / "generated").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o777 if path.is_dir() else 0o666) & ~umask


@pytest.mark.usefixtures("fast")
def test_two_builds_at_a_time_wait_for_each_other(tmp_path: Path) -> None:
    folder = _old_folder(tmp_path / "generated")
    children = []
    for number in range(6):
        children.append(os.fork())
        if children[-1] == 0:
            for step in range(8):
                publish(folder, {name: text + f"# {number} {step}\n" for name, text in AFTER.items()})
            os._exit(0)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    found = _files(folder)
    assert {name: found.pop(name) for name in (*FOREIGN, *LINKED)} == {**FOREIGN, **LINKED}
    assert found.keys() == AFTER.keys() and len({text.split("#")[1] for text in found.values()}) == 1


# Failures


def _after(calls: int, real: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """`real`, but every call after that many raises."""
    made = itertools.count()

    def stand_in(*arguments: Any, **options: Any) -> Any:
        if next(made) >= calls:
            raise error
        return real(*arguments, **options)

    return stand_in


def _stale(folder: Path) -> Path:
    """A project with an older build in it, whose next build changes files and adds one."""
    path = write_project(folder)
    assert build(path) == 0
    write_table(folder / "tables/h100", times=lambda shape: planted(shape)[::-1])
    content = spec(tables={DEVICE: "tables/h100", "nvidia": "tables/h100"})
    content["devices"]["nvidia"] = {"vendor": "nvidia"}
    return write_spec(folder, content)


@pytest.mark.parametrize("calls", range(4))
def test_a_disk_that_gets_full_changes_nothing(
    tmp_path: Path, refusal: Refuse, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    path = _stale(tmp_path)
    monkeypatch.setattr(os, "fsync", _after(calls, os.fsync, OSError("No space left on device")))
    assert f"{tmp_path}/generated" in refusal(tmp_path, "build", "--spec", path)


@pytest.mark.parametrize("calls", [0, 2, 3])
def test_control_c_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    path = _stale(tmp_path)
    before = contents(tmp_path)
    monkeypatch.setattr(os, "fsync", _after(calls, os.fsync, KeyboardInterrupt()))
    assert build(path) == 130
    assert contents(tmp_path) == before


@pytest.mark.parametrize("calls", range(3))
def test_a_file_that_cannot_be_replaced_changes_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    old = dict.fromkeys("abc", "old")
    write_files(tmp_path, old)
    before = contents(tmp_path)
    monkeypatch.setattr(Path, "replace", _after(calls, Path.replace, OSError("Input/output error")))
    with pytest.raises(InputError):
        write_files(tmp_path, {**dict.fromkeys("abc", "new"), "d/e": "new"})
    assert contents(tmp_path) == before


# Real disks


def _may(*command: str | Path) -> None:
    """Run a command that needs rights; skip the test where they are missing."""
    if shutil.which(str(command[0])) is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip(f"{command[0]} is not allowed here")


@pytest.mark.parametrize("name", [".", "generated", "generated/scale"])
def test_a_read_only_mount_changes_nothing(tmp_path: Path, refusal: Refuse, name: str) -> None:
    path = _stale(tmp_path / "project")
    folder = tmp_path / "project" / name
    _may("mount", "--bind", folder, folder)
    try:
        _may("mount", "-o", "remount,ro,bind", folder)
        refusal(tmp_path, "build", "--spec", path)
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("name", ["scale", "scale/config.py", "scale/default.py", f"scale/{DEVICE}.py"])
def test_what_is_immutable_is_not_lost(tmp_path: Path, name: str) -> None:
    """Either nothing changes, or the new folder is there and what cannot be removed lies beside it."""
    path = _stale(tmp_path)
    before, immutable = contents(tmp_path / "generated"), tmp_path / "generated" / name
    _may("chattr", "+i", immutable)
    try:
        status = build(path)
        assert (status == 2) == (contents(tmp_path / "generated") == before)
    finally:
        subprocess.run(["chattr", "-R", "-i", tmp_path], check=True)
    assert build(path) == 0
    assert not list(tmp_path.glob(".treegen-*"))
