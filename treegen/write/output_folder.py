"""The output folder of builds: compared with a build, or replaced in one step.

A new folder is written beside the old one and changes places with it. So a build that is killed at any moment
leaves one or the other, and the next build removes what is left beside it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
from collections.abc import Collection, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

from treegen.core.files import IN_KERNEL, try_path
from treegen.emit.templating import MARK
from treegen.write.files import check_writable, content_of, write_file, write_files

_CONFIG = "config.py"
_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def publish(folder: Path, files: Mapping[str, str]) -> tuple[int, int]:
    """Make a folder hold a build's files; returns how many changed, and how many stale modules are removed.

    Files of others in the folder stay, as hard links to the same files. Where folders cannot change places
    (another system than Linux, a layer of a container's image, a mounted folder), the files are renamed one
    by one, and only a kill between two renames leaves some old and some new ones. Raises InputError.
    """
    check_writable(folder, files)
    real = folder.resolve()
    with _alone(next(path for path in real.parents if path.exists())):
        for left in real.parent.glob(f"{_beside(real)}*"):
            shutil.rmtree(left, ignore_errors=True)
        changed = {name: text for name, text in files.items() if content_of(folder / name) != text.encode()}
        stale = stale_files(folder, files)
        if changed or stale:
            try:
                _replace(real, changed, {real / path.relative_to(folder) for path in stale})
            except (OSError, AttributeError):
                write_files(folder, files, remove=stale)
    return len(changed), len(stale)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one build at a time replace what is in a folder."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, ImportError):  # not all folders and systems have locks
            import fcntl

            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _beside(folder: Path) -> str:
    return f".treegen-{folder.name}-"


def _replace(folder: Path, changed: Mapping[str, str], stale: Collection[Path]) -> None:
    beside = folder.with_name(f"{_beside(folder)}{os.getpid()}")
    beside.mkdir()
    try:
        if folder.exists():
            left_out = {*stale, *(folder / name for name in changed)}
            shutil.copytree(
                folder,
                beside,
                symlinks=True,
                ignore=lambda inside, names: [name for name in names if Path(inside) / name in left_out],
                copy_function=os.link,
                dirs_exist_ok=True,
            )
            _keep_owners(folder, beside)
        for name, text in changed.items():
            (beside / name).parent.mkdir(parents=True, exist_ok=True)
            write_file(beside / name, text.encode())
        if folder.exists():
            _exchange(beside, folder)
        else:
            beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)  # the old folder, or a new one that failed


def _exchange(one: Path, other: Path) -> None:
    """Let two folders change places in one step. Raises OSError or AttributeError where they cannot."""
    rename = ctypes.CDLL(None, use_errno=True).renameat2
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), "the folders cannot change places")


def _keep_owners(old: Path, new: Path) -> None:
    """Leave folders to their owner where root builds, as in a container."""
    if os.geteuid() == 0:
        for folder in (old, *(path for path in old.rglob("*") if path.is_dir() and not path.is_symlink())):
            status = folder.stat()
            os.chown(new / folder.relative_to(old), status.st_uid, status.st_gid)


def foreign_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Modules that a build would replace although treegen did not write them."""
    try_path(folder, Path.exists)
    modules = [folder / name for name in files if name.endswith(".py")]
    present = [path for path in modules if content_of(path) is not None and not path.is_symlink()]
    return [path for path in present if not _marked(path)]


def stale_files(folder: Path, files: Mapping[str, str]) -> list[Path]:
    """Modules in `folder` that treegen wrote for a table that left the spec."""
    paths = sorted(folder.glob("*.py"))
    # Only a folder with a generated config.py is a kernel's package of this project.
    packages = [path.parent for path in sorted(folder.glob(f"*/{_CONFIG}")) if _marked(path)]
    for place in (place for package in packages for place in (package, package / IN_KERNEL)):
        if not place.is_symlink() and not place.parent.is_symlink():
            paths += sorted(place.glob("*.py"))
    return [path for path in paths if path.relative_to(folder).as_posix() not in files and _marked(path)]


def differences(folder: Path, files: Mapping[str, str]) -> Iterator[str]:
    """One line for every file in `folder` that a build would change."""
    for name, text in sorted(files.items()):
        current = content_of(folder / name)
        if current is None:
            yield f"{folder / name} is missing"
        elif current != text.encode():
            yield f"{folder / name} is stale: {_first_difference(current, text)}"
    for path in stale_files(folder, files):
        yield f"{path} belongs to no table of the spec any more"


def _first_difference(current: bytes, expected: str) -> str:
    old, new = current.decode(errors="replace").splitlines(), expected.splitlines()
    for number, (have, need) in enumerate(zip_longest(old, new), 1):
        if have != need:
            have, need = (
                "the end of the file" if line is None else ascii(line.strip()) for line in (have, need)
            )
            return f"line {number} is {have}, a build gives {need}"
    return "its line ends are not those that a build writes"


def _marked(path: Path) -> bool:
    return MARK.encode() in (content_of(path) or b"").split(b"\n", 1)[0]
