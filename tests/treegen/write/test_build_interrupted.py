"""Disk full, no permission, a kill at any moment: no file is half-written, and the next build is complete."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import (
    DEVICE,
    FEATURES,
    REPOSITORY,
    build,
    contents,
    grid,
    imported,
    planted,
    spec,
    write_project,
    write_spec,
    write_table,
)

from treegen import build as compiler
from treegen.core.errors import InputError
from treegen.write.files import write_files

Refuse = Callable[..., str]


class Killed(BaseException):
    """Stands in for SIGKILL: nothing in treegen may catch it."""


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


def _dies(problem: object) -> None:
    """Stands in for a fit whose process is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed(tmp_path: Path, refusal: Refuse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "SCENARIOS_A_PROCESS", 1)
    monkeypatch.setattr(compiler, "fit_tree", _dies)
    message = refusal(tmp_path, "build", "--spec", write_project(tmp_path), "--jobs", "2")
    assert (
        message
        == "a process of this command was killed, as when memory runs out; --jobs 1 takes least memory"
    )
    assert not (tmp_path / "generated").exists()


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
    assert "cannot be written: Permission denied" in refusal(tmp_path, "build", "--spec", path)


@pytest.mark.parametrize("calls", [0, 2])
def test_a_rename_that_fails_leaves_all_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    path = _stale(tmp_path)
    before = contents(tmp_path)
    capsys.readouterr()
    real = Path.replace

    def failing(source: Path, target: Path) -> Path:
        """Fails once, so that old files can be put back."""
        nonlocal calls
        calls -= 1
        if calls == -1:
            raise OSError(errno.EIO, "Input/output error")
        return real(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", failing)
        assert build(path) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Input/output error" in line and contents(tmp_path) == before


def test_a_removal_that_fails_puts_back_a_link_that_was_removed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        write_files(tmp_path, {}, remove=[tmp_path / "link", tmp_path / "folder"])
    assert (tmp_path / "link").readlink() == Path("elsewhere")


@pytest.mark.parametrize("calls", [0, 2, 4])
def test_a_kill_while_files_are_prepared_changes_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    path = _stale(tmp_path)
    old = contents(tmp_path / "generated")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", _after(calls, os.fsync, Killed()))
        with pytest.raises(Killed):
            build(path)
    found = contents(tmp_path / "generated")
    assert {name: text for name, text in found.items() if ".treegen-" not in name} == old


def _threshold(folder: Path) -> None:
    write_table(folder / "tables/h100", times=lambda shape: planted(shape)[::-1])


def _changed_spec(**kernel: Any) -> Callable[[Path], object]:
    return lambda folder: write_spec(folder, spec(**kernel))


def _second_device(folder: Path) -> None:
    content = spec(tables={DEVICE: "tables/h100", "nvidia": "tables/h100"})
    content["devices"]["nvidia"] = {"vendor": "nvidia"}
    write_spec(folder, content)


def _second_kernel(folder: Path) -> None:
    content = spec()
    content["kernels"]["again"] = content["kernels"]["scale"] | {
        "translate": {"scale": {"variant": "plain", "rename": {}}}
    }
    write_spec(folder, content)


def _parameters(**more: Any) -> dict[str, Any]:
    return {"variants": ["plain"], "parameters": {"block": "B", "warps": "W", **more}}


FALLBACK = {"variant": "plain", "block": 64, "warps": 4}
CHANGES: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "the table": (write_spec, _threshold),
    "a device more": (write_spec, _second_device),
    "a device less": (_second_device, write_spec),
    "a kernel more": (write_spec, _second_kernel),
    "a kernel less": (_second_kernel, write_spec),
    "a feature more": (write_spec, _changed_spec(features=["rows", "columns", "heads", "depth"])),
    "a parameter more": (write_spec, _changed_spec(config=_parameters(parts={"letter": "N", "default": 1}))),
    "a parameter less": (_changed_spec(config=_parameters(parts={"letter": "N", "default": 1})), write_spec),
    "another default": (
        _changed_spec(
            config=_parameters(parts={"letter": "N", "default": 1}), fallback={**FALLBACK, "parts": 2}
        ),
        _changed_spec(
            config=_parameters(parts={"letter": "N", "default": 2}), fallback={**FALLBACK, "parts": 1}
        ),
    ),
    "another fallback": (write_spec, _changed_spec(fallback={**FALLBACK, "warps": 8})),
}
POINTS = [dict(zip(FEATURES, (rows, columns, heads), strict=True)) for rows, columns, heads in grid()]
POINTS += [{**point, "heads": 1000} for point in POINTS]
Choices = list[dict[str, Any]]


def _choices(folder: Path) -> dict[tuple[str, str], Choices]:
    """What every device's module chooses at POINTS."""
    with imported(folder) as generated:
        packages = {name: getattr(generated, name) for name in generated.__all__}
        return {
            (name, key): [_chosen(module, point) for point in POINTS]
            for name, package in packages.items()
            for key, module in package.MODULES.items()
        }


def _chosen(module: Any, point: dict[str, int]) -> dict[str, Any]:
    code = module.choose.__code__
    names = code.co_varnames[: code.co_kwonlyargcount]
    chosen: dict[str, Any] = module.choose(**{name: point.get(name, 1) for name in names})._asdict()
    return {"arguments": names, **chosen}


class _Kill:
    """Stops the process, as far as it is seen from outside, after so many renames and removals."""

    def __init__(self, patch: pytest.MonkeyPatch, most: int) -> None:
        self.left, self.reached = most, False
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, self._stopped(getattr(Path, name)))

    def _stopped(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def stand_in(*arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                self.reached = True
                raise Killed
            return real(*arguments, **options)

        return stand_in


@pytest.mark.parametrize("change", CHANGES)
def test_after_a_kill_between_renames_packages_work_or_say_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Stop after every number of renames.

    Each file is old, new, or one of two interim files. Each device chooses wholly as before or wholly as
    after, or nothing can be imported. The next build gives the same as without the kill.
    """
    before, after = CHANGES[change]
    write_project(tmp_path / "old")
    before(tmp_path / "old")
    assert build(tmp_path / "old/treegen.yaml") == 0
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    after(tmp_path / "new")
    assert build(tmp_path / "new/treegen.yaml") == 0
    old, new = (contents(tmp_path / side / "generated") for side in ("old", "new"))
    chosen = [_choices(tmp_path / side) for side in ("old", "new")]
    assert old != new
    for most in itertools.count():
        killed = tmp_path / f"killed{most}"
        shutil.copytree(tmp_path / "old", killed)
        after(killed)
        with monkeypatch.context() as patch:
            kill = _Kill(patch, most)
            with contextlib.suppress(Killed):
                build(killed / "treegen.yaml")
        if not kill.reached:
            break
        found = contents(killed / "generated")
        odd = {
            n for n, text in found.items() if text not in (old.get(n), new.get(n)) and ".treegen-" not in n
        }
        assert odd <= {"treegen.lock", "scale/config.py", "again/config.py"}
        try:
            choices = _choices(killed)
        except ImportError as error:
            assert str(error) == "scale: `treegen build` was cut off; run it again"
            assert "scale/config.py" in odd
        else:
            assert "scale/config.py" not in odd
            for key, chooses in choices.items():
                assert chooses in [side[key] for side in chosen if key in side]
            assert set(choices) in [set(side) for side in chosen]
        assert build(killed / "treegen.yaml") == 0
        assert contents(killed / "generated") == new
    assert most >= 3  # lock, module, lock


def test_the_next_build_removes_what_a_kill_left(tmp_path: Path) -> None:
    """A real SIGKILL, as nothing in the process can clean up after that."""
    write_project(tmp_path)
    code = """
import os, signal, treegen.cli.main
made, real = [], os.fsync
os.fsync = lambda file: made.append(real(file)) or len(made) < 3 or os.kill(os.getpid(), signal.SIGKILL)
treegen.cli.main.main(["build"])
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
