"""Files that a kill, a full disk or a second run must not damage."""

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from attn_kernels.tuning.errors import TuningError

STAGED = ".attn-tune-"


def open_locked(path: Path, flags: int) -> int:
    """A descriptor that appends to `path` and is alone in it: the lock ends with the process."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | flags, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            what = "another run is writing here: wait for its end, or choose another --out"
            raise TuningError(f"{path.parent}: {what}") from None
        raise
    return descriptor


def whole_lines(path: Path) -> str:
    """The whole lines of a file."""
    content = path.read_bytes()
    try:
        return content[: content.rfind(b"\n") + 1].decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TuningError(f"{path}:{line}: not UTF-8 text") from None


def remove_cut_off(path: Path, descriptor: int) -> None:
    """Cut off what follows the last line end."""
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.ftruncate(descriptor, whole)
        os.fsync(descriptor)


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


def replace_file(path: Path, text: str) -> None:
    """Put `text` at `path` at once: a kill leaves the old file or the new one, at worst a staged one too.

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


@contextlib.contextmanager
def told_in_one_line(folder: Path) -> Iterator[None]:
    """What the operating system refuses, as one line."""
    try:
        yield
    except OSError as error:
        place = error.filename or folder
        raise TuningError(f"{place}: cannot be used: {error.strerror or error}") from None
