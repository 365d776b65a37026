"""The output folder of builds: compared with a build, or made to hold one.

Each file is replaced in one step, and the lock last. So a build that is killed at any moment leaves whole
files, and the next build sees by the lock that it did not end.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from pathlib import Path

from treegen.core.files import IN_KERNEL, try_path
from treegen.emit.templating import MARK
from treegen.write.files import content_of, write_files


def publish(folder: Path, files: Mapping[str, str]) -> tuple[int, int]:
    """Make a folder hold a build's files; returns how many changed, and how many stale modules are removed.

    files: their texts by path, the lock last. Other files in the folder stay. Raises InputError.
    """
    real = folder.resolve()
    with _alone(next(path for path in real.parents if path.exists())):
        stale = stale_files(folder, files)
        return write_files(folder, files, remove=stale), len(stale)


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
    packages = [path.parent for path in sorted(folder.glob("*/config.py")) if _marked(path)]
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
    for number, lines in enumerate(zip_longest(old, new), 1):
        if lines[0] != lines[1]:
            have, need = ("the end of the file" if one is None else ascii(one.strip()) for one in lines)
            return f"line {number} is {have}, a build gives {need}"
    return "its line ends are not those that a build writes"


def _marked(path: Path) -> bool:
    return MARK.encode() in (content_of(path) or b"").split(b"\n", 1)[0]
