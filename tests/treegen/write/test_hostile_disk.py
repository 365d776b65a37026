"""Real disks that are full, files and folders that may not be written: one line, and all is as it was."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from treegen_builders import (
    DEVICE,
    REPOSITORY,
    build,
    contents,
    planted,
    spec,
    write_project,
    write_spec,
    write_table,
)
from treegen_caches import write_cache

Refuse = Callable[..., str]
PAGE = 4096


def _may(*command: str | Path) -> None:
    """Run a command that needs rights; skip the test where they are missing."""
    if shutil.which(str(command[0])) is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip(f"{command[0]} is not allowed here")


def _stale(folder: Path) -> Path:
    """A project with an older build in it.

    The next build changes all files but the top package, adds one, and writes two interim files.
    """
    path = write_project(folder)
    assert build(path) == 0
    write_table(folder / "tables/h100", times=lambda shape: planted(shape)[::-1])
    content = spec(
        config={
            "variants": ["plain"],
            "parameters": {"block": "B", "parts": {"letter": "N", "default": 2}, "warps": "W"},
        },
        tables={DEVICE: "tables/h100", "nvidia": "tables/h100"},
        fallback={"variant": "plain", "block": 64, "warps": 8},
    )
    content["devices"]["nvidia"] = {"vendor": "nvidia"}
    return write_spec(folder, content)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 pages of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    _may("mount", "-t", "tmpfs", "-o", f"size={64 * PAGE}", "tmpfs", folder)
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("free", [0, 1, 2, 4, 7, 8])
def test_a_disk_that_gets_full(disk: Path, refusal: Refuse, free: int) -> None:
    """free: pages that are left; a build needs one a file that it changes."""
    path = _stale(disk)
    (disk / "filler").write_bytes(b"x" * free * PAGE)
    _fill(disk)
    (disk / "filler").unlink()
    if free < 8:
        assert "cannot be written: No space left on device" in refusal(disk, "build", "--spec", path)
    else:
        assert build(path) == 0


@pytest.mark.parametrize("most", [50, 100, 500, 1000])
def test_a_limit_on_the_size_of_files(tmp_path: Path, most: int) -> None:
    _stale(tmp_path)
    before = contents(tmp_path)
    code = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most})); "
    code += "import sys, treegen.cli.main; sys.exit(treegen.cli.main.main(['build']))"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "treegen: generated: cannot be written: File too large\n")
    assert contents(tmp_path) == before


NAMES = ["scale/__init__.py", "scale/config.py", "scale/default.py", f"scale/{DEVICE}.py", "treegen.lock"]


@pytest.mark.parametrize("name", [*NAMES, "scale"])
def test_what_is_immutable(tmp_path: Path, refusal: Refuse, name: str) -> None:
    """A new file can be written beside an immutable one, but not put in its place: others are by then."""
    path = _stale(tmp_path)
    _may("chattr", "+i", tmp_path / "generated" / name)
    try:
        assert "cannot be written: Operation not permitted" in refusal(tmp_path, "build", "--spec", path)
    finally:
        subprocess.run(["chattr", "-i", tmp_path / "generated" / name], check=True)
    assert build(path) == 0


def test_a_stale_module_that_is_immutable(tmp_path: Path, refusal: Refuse) -> None:
    path = _stale(tmp_path)
    stale = tmp_path / "generated/scale/old.py"
    stale.write_bytes((tmp_path / "generated/scale/default.py").read_bytes())
    _may("chattr", "+i", stale)
    try:
        assert "cannot be written: Operation not permitted" in refusal(tmp_path, "build", "--spec", path)
    finally:
        subprocess.run(["chattr", "-i", stale], check=True)


@pytest.mark.parametrize("name", ["scale/config.py", f"scale/{DEVICE}.py"])
def test_a_file_that_is_mounted(tmp_path: Path, refusal: Refuse, name: str) -> None:
    """As containers mount single files: they can be read and written, but not replaced."""
    path = _stale(tmp_path)
    file = tmp_path / "generated" / name
    _may("mount", "--bind", file, file)
    try:
        assert "cannot be written: Device or resource busy" in refusal(tmp_path, "build", "--spec", path)
    finally:
        subprocess.run(["umount", file], check=True)


@pytest.mark.parametrize("name", ["generated", "generated/scale"])
def test_a_read_only_mount(tmp_path: Path, refusal: Refuse, name: str) -> None:
    path = _stale(tmp_path)
    folder = tmp_path / name
    _may("mount", "--bind", folder, folder)
    try:
        _may("mount", "-o", "remount,ro,bind", folder)
        assert "cannot be written: Read-only file system" in refusal(tmp_path, "build", "--spec", path)
    finally:
        subprocess.run(["umount", folder], check=True)


def _fill(disk: Path) -> None:
    with (disk / "filling").open("wb", buffering=0) as out, contextlib.suppress(OSError):
        while True:
            out.write(b"x" * PAGE)


def test_an_import_onto_a_full_disk(disk: Path, tmp_path: Path, refusal: Refuse) -> None:
    write_cache(tmp_path / "caches")
    _fill(disk)
    line = refusal(disk, "import", "dejavu", tmp_path / "caches", "--to", disk)
    assert line == f"{disk}: cannot be written: No space left on device"


def test_an_import_without_room_for_temporary_files(
    disk: Path, tmp_path: Path, refusal: Refuse, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_cache(tmp_path / "caches")
    _fill(disk)
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    line = refusal(tmp_path, "import", "dejavu", tmp_path / "caches", "--to", tmp_path / "tables")
    assert line == "temporary files: cannot be written: No space left on device"
