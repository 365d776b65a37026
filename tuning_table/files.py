"""Read files whose names come from outside, and write files that a kill or a full disk does not damage."""

import contextlib
import csv
import errno
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tuning_table.errors import TableError, reason

MAX_BYTES = 64 << 20  # of an input file
STAGED = ".tuning-table-"
T = TypeVar("T")


def try_path(path: Path, look: Callable[[Path], T]) -> T:
    """`look(path)`, with TableError for names that no file can have: too long, with NUL, a loop of links."""
    try:
        return look(path)
    except (OSError, ValueError, RuntimeError) as error:
        raise TableError(path, f"cannot be read: {reason(error)}") from None


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """The content of a plain file of at most `most` bytes; never waits for a pipe. Raises TableError."""
    if not try_path(path, Path.is_file):
        raise TableError(path, "not a plain file" if try_path(path, Path.exists) else "no such file")
    if try_path(path, Path.stat).st_size > most:
        raise TableError(path, f"larger than {most >> 20} MiB")
    return try_path(path, Path.read_bytes)


def read_text(path: Path, most: int = MAX_BYTES, *, whole_lines: bool = False) -> str:
    """Its UTF-8 text, without a byte-order mark. whole_lines: without what follows the last line end."""
    content = read_bytes(path, most)
    if whole_lines:
        content = content[: content.rfind(b"\n") + 1]
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TableError(path, "not UTF-8 text", content.count(b"\n", 0, error.start) + 1) from None


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
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            raise _locked(path) from None
        raise
    if not path.exists() or os.fstat(descriptor).st_ino != path.stat().st_ino:  # it was just replaced
        os.close(descriptor)
        raise _locked(path)
    return descriptor


def _locked(path: Path) -> TableError:
    return TableError(path.parent, "another run is writing here: wait for its end, or choose another folder")


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


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def append_to(path: Path, head: str, text: str) -> None:
    """Append `text` to a file, after `head` if the file is empty; on disk when this returns."""
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        empty = not os.fstat(descriptor).st_size
        append_whole(descriptor, head + text if empty else text)
    finally:
        os.close(descriptor)


def replace_file(path: Path, text: str) -> None:
    """Put `text` at `path` atomically, one process at a time; on disk when this returns.

    A kill may leave a staged file beside it.
    """
    staged = path.parent / f"{STAGED}{path.name}"
    try:
        staged.unlink(missing_ok=True)
        append_to(staged, "", text)
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
