"""Write files whole, and all of them or none."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from treegen.core.errors import InputError, reason
from treegen.core.files import MAX_BYTES, try_path

_STAGED = ".treegen-"


def write_files(folder: Path, files: Mapping[str, str], *, remove: Iterable[Path] = ()) -> int:
    """Write texts below `folder`, and remove other files; returns how many texts are new there.

    New contents are first written beside their targets, then renamed into place in the order of `files`. A
    failure (disk full, no permission, Ctrl-C) leaves everything as it was. Raises InputError.
    """
    check_writable(folder, files)
    encoded = {folder / name: text.encode() for name, text in files.items()}
    changed = {path: data for path, data in encoded.items() if content_of(path) != data}
    staged: dict[Path, Path] = {}
    before: dict[Path, bytes | None] = {}
    made: list[Path] = []
    try:
        for target, data in changed.items():
            for path in reversed([path for path in target.parents if not path.exists()]):
                path.mkdir()
                made.append(path)
            staged[target] = Path(tempfile.mktemp(dir=target.parent, prefix=_STAGED))
            write_file(staged[target], data)
        for target, temporary in staged.items():
            before[target] = content_of(target)
            temporary.replace(target)
        folders = {path.parent for path in encoded}
        leftovers = [path for inside in folders for path in inside.glob(f"{_STAGED}*") if path.is_file()]
        for path in (*remove, *leftovers):
            before[path] = content_of(path)
            path.unlink()
    except BaseException as error:
        for path in staged.values():
            with contextlib.suppress(OSError):
                path.unlink()
        for path, content in before.items():
            with contextlib.suppress(OSError):
                if content_of(path) != content:
                    path.unlink(missing_ok=True)
                    if content is not None:
                        write_file(path, content)
        for path in reversed(made):
            with contextlib.suppress(OSError):
                path.rmdir()
        if isinstance(error, OSError | ValueError):
            raise InputError(folder, f"cannot be written: {reason(error)}") from None
        raise
    return len(changed)


def check_writable(folder: Path, names: Iterable[str]) -> None:
    """Raise InputError if files of these names cannot or may not be written below `folder`."""
    above = next(path for path in (folder, *folder.absolute().parents) if try_path(path, Path.exists))
    if not try_path(above, Path.is_dir):
        raise InputError(above, "is a file, but a folder belongs there")
    for name in names:
        target = folder / name
        if try_path(target, Path.is_dir):
            raise InputError(target, "is a folder, but a file belongs there")
        if target.is_file() and target.stat().st_size > MAX_BYTES:
            raise InputError(target, f"larger than {MAX_BYTES >> 20} MiB; remove it")
        for parent in (folder / inner for inner in Path(name).parents if inner != Path()):
            if parent.is_symlink():
                raise InputError(parent, "is a symbolic link; nothing is written through it")
            if parent.exists() and not parent.is_dir():
                raise InputError(parent, "is a file, but a folder belongs there")


def check_replaceable(path: Path, command: str, mark: bytes) -> None:
    """Raise InputError for a file without the mark that all files of `command` hold. It may be empty."""
    if not try_path(path, Path.exists):
        return
    content = content_of(path)
    if content is None:
        raise InputError(path, "is not an ordinary file, so nothing is written there")
    if content and mark not in content:
        raise InputError(path, f"was not written by `{command}`; remove it, or write elsewhere")


def content_of(path: Path) -> bytes | None:
    """The bytes of a plain file (none if it is too large to be generated); None if there is no plain file."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return None
        return path.read_bytes() if status.st_size <= MAX_BYTES else b""
    except (OSError, ValueError):
        return None


def write_file(path: Path, data: bytes) -> None:
    """Write a new file with ordinary permissions, and wait until the disk holds it."""
    with path.open("xb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
