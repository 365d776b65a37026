"""Kills, full disks and missing rights: a build leaves whole files, and the next one completes it."""

import itertools
import os
import signal
import stat
import sys
from pathlib import Path

import pytest
from treegen_builders import build, contents, planted, spec, write_project, write_spec, write_table

from treegen.core.errors import InputError
from treegen.emit.templating import MARK
from treegen.write.files import write_files
from treegen.write.output_folder import publish

NEW = f'"""New. {MARK}"""\n'
OLD = NEW.replace("New", "Old")
BEFORE = dict.fromkeys(
    ("__init__.py", "k/__init__.py", "k/config.py", "k/a.py", "k/b.py", "treegen.lock"), OLD
)
_NAMES = ("__init__.py", "k/config.py", "k/a.py", "k/in_kernel/a.py", "treegen.lock")
AFTER = {"k/__init__.py": OLD, **dict.fromkeys(_NAMES, NEW)}
FOREIGN = {"notes.md": "mine", "k/mine.py": "x = 1\n", "other/deep/data": "mine"}


def _old_folder(folder):
    """An output folder of a build, with files of others in it."""
    publish(folder, BEFORE)
    for name, text in FOREIGN.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "k/link").symlink_to("mine.py")
    return folder


def _files(folder):
    return {name: text.decode() for name, text in contents(folder).items() if text is not None}


LINKED = {"k/link": "x = 1\n"}


def _killed_after(steps, folder, files):
    """Publish in another process that gets a real SIGKILL after so many changes; whether it came to that."""
    child = os.fork()
    if child == 0:
        left = iter(range(steps))

        def count(event, arguments):
            writes = event == "open" and isinstance(arguments[1], str) and set("wx") & set(arguments[1])
            changes = ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
            if (writes or event in changes) and next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        publish(folder, files)
        os._exit(0)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


@pytest.fixture
def fast(monkeypatch):
    """Does not wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.usefixtures("fast")
def test_a_kill_at_any_step_is_completed_by_the_next_build(tmp_path, first):
    seen, others = set(), {} if first else {**FOREIGN, **LINKED}
    for steps in itertools.count():
        folder = tmp_path / str(steps) / "generated"
        folder.parent.mkdir()
        if not first:
            _old_folder(folder)
        killed = _killed_after(steps, folder, AFTER)
        left = {n: text for n, text in _files(folder).items() if "/.treegen-" not in f"/{n}"}  # begun
        if first:
            assert left.items() <= AFTER.items()
        else:
            assert left.items() >= others.items()
            assert {*BEFORE} - {"k/b.py"} <= left.keys() <= {*BEFORE, *AFTER, *others}
            assert all(text in (OLD, NEW) for name, text in left.items() if name not in others)
            if left["treegen.lock"] == NEW:  # it comes last
                assert all(left[name] == text for name, text in AFTER.items())
            seen.add((left["k/a.py"], left["treegen.lock"]))
        publish(folder, AFTER)
        assert _files(folder) == {**AFTER, **others}
        assert [path.name for path in folder.parent.iterdir()] == ["generated"]
        if not killed:
            break
        assert first or (folder / "k/link").is_symlink()
    assert first or (steps >= 12 and seen == {(OLD, OLD), (NEW, OLD), (NEW, NEW)})


def test_unchanged_files_and_files_of_others_are_the_same_files(tmp_path):
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
def test_files_and_folders_are_readable_by_everyone_the_umask_allows(tmp_path, umask):
    before = os.umask(umask)
    try:
        publish(tmp_path / "generated", BEFORE)
        publish(tmp_path / "generated", AFTER)
    finally:
        os.umask(before)
    for path in (tmp_path / "generated", *(tmp_path / "generated").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o777 if path.is_dir() else 0o666) & ~umask


@pytest.mark.usefixtures("fast")
def test_two_builds_at_a_time_wait_for_each_other(tmp_path):
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


def _after(calls, real, error):
    """`real`, but every call after that many raises."""
    made = itertools.count()

    def stand_in(*arguments, **options):
        if next(made) >= calls:
            raise error
        return real(*arguments, **options)

    return stand_in


def _stale(folder):
    """A project with an older build in it, whose next build changes files and adds one."""
    path = write_project(folder)
    assert build(path) == 0
    write_table(folder / "tables/h100", times=lambda shape: planted(shape)[::-1])
    return write_spec(folder, spec({"nvidia": {"vendor": "nvidia"}}))


@pytest.mark.parametrize("calls", range(4))
@pytest.mark.parametrize("error", [OSError("No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_changes_nothing(tmp_path, refusal, monkeypatch, calls, error):
    path = _stale(tmp_path)
    before = contents(tmp_path)
    monkeypatch.setattr(os, "fsync", _after(calls, os.fsync, error))
    if isinstance(error, OSError):
        assert f"{tmp_path}/generated" in refusal(tmp_path, "build", "--spec", path)
    else:
        assert build(path) == 130
    assert contents(tmp_path) == before


@pytest.mark.parametrize("calls", range(3))
def test_failed_replaces_change_nothing(tmp_path, monkeypatch, calls):
    old = dict.fromkeys("abc", "old")
    write_files(tmp_path, old)
    before = contents(tmp_path)
    monkeypatch.setattr(Path, "replace", _after(calls, Path.replace, OSError("Input/output error")))
    with pytest.raises(InputError):
        write_files(tmp_path, {**dict.fromkeys("abc", "new"), "d/e": "new"})
    assert contents(tmp_path) == before
