"""Write files so that neither a kill, nor a full disk, nor a second process damages them."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from tuning_table.errors import TableError, reason

STAGED = ".tuning-table-"


@contextlib.contextmanager
def os_errors_in_one_line(place: Path) -> Iterator[None]:
    """Turn what the operating system refuses into a TableError."""
    try:
        yield
    except OSError as error:
        raise TableError(error.filename or place, f"cannot be used: {reason(error)}") from None


def open_locked(path: Path, flags: int) -> int:
    """A descriptor that appends to `path` and holds its lock until it is closed or the process ends."""
    import fcntl  # only reading works where there is none

    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | flags, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), path.stat()):  # the file was replaced meanwhile
            raise OSError(errno.EWOULDBLOCK, "")
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            what = "another run is writing here: wait for its end, or choose another folder"
            raise TableError(path.parent, what) from None
        raise
    return descriptor


def remove_cut_off_line(path: Path) -> None:
    """Remove what follows the last line end."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())


def append_whole(descriptor: int, text: str) -> None:
    """Append in one write, on disk when this returns; on OSError the file is as it was."""
    data = text.encode()
    size = os.fstat(descriptor).st_size
    try:
        if os.write(descriptor, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, size)
        raise


def append_to(path: Path, head: str, text: str) -> None:
    """Append `text` to a file, after `head` if the file is empty; on disk when this returns."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        empty = not os.fstat(descriptor).st_size
        append_whole(descriptor, head + text if empty else text)
    finally:
        os.close(descriptor)


def replace_locked(path: Path, text: str, locked: int) -> int:
    """Replace a file that is locked through `locked`, atomically; the new descriptor holds the new lock."""
    import fcntl

    staged = path.parent / f"{STAGED}{path.name}"
    descriptor = os.open(staged, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        append_whole(descriptor, text)
        staged.replace(path)
    except BaseException:
        os.close(descriptor)
        staged.unlink(missing_ok=True)
        raise
    os.close(locked)
    return descriptor


def replace_file(path: Path, text: str) -> None:
    """Put `text` at `path` atomically; a kill may leave a staged file beside it.

    Only one process may do so at a time.
    """
    staged = path.parent / f"{STAGED}{path.name}"
    try:
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            append_whole(descriptor, text)
        finally:
            os.close(descriptor)
        staged.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            staged.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
