"""Read files whose names come from outside: every failure is one TableError."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tuning_table.errors import TableError, reason

T = TypeVar("T")


def try_path(path: Path, look: Callable[[Path], T]) -> T:
    """`look(path)`, with TableError for names that no file can have: too long, with NUL, a loop of links."""
    try:
        return look(path)
    except (OSError, ValueError, RuntimeError) as error:
        raise TableError(path, f"cannot be read: {reason(error)}") from None


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a plain file of at most `most` bytes; never waits for a pipe. Raises TableError."""
    if not try_path(path, Path.is_file):
        raise TableError(path, "not a plain file" if try_path(path, Path.exists) else "no such file")
    if try_path(path, Path.stat).st_size > most:
        raise TableError(path, f"larger than {most >> 20} MiB")
    return try_path(path, Path.read_bytes)
