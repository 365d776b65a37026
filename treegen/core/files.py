"""Read files whose names and contents come from outside: every failure is one InputError."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from treegen.core.errors import InputError, reason

MAX_BYTES = 64 << 20  # of an input file
T = TypeVar("T")


def try_path(path: Path, look: Callable[[Path], T]) -> T:
    """`look(path)`, with InputError for names that no file can have: too long, with NUL, a loop of links."""
    try:
        return look(path)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(path, f"cannot be read: {reason(error)}") from None


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """The content of a plain file of at most `most` bytes; never waits for a pipe. Raises InputError."""
    if not try_path(path, Path.is_file):
        raise InputError(path, "not a plain file" if try_path(path, Path.exists) else "no such file")
    if try_path(path, Path.stat).st_size > most:
        raise InputError(path, f"larger than {most >> 20} MiB")
    return try_path(path, Path.read_bytes)


def read_text(path: Path, most: int = MAX_BYTES) -> str:
    """The text of a UTF-8 file of at most `most` bytes. Raises InputError."""
    content = read_bytes(path, most)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(path, f"not UTF-8 text (byte {error.start})") from None


def digest(text: str) -> str:
    """The SHA-256 of a text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


def short(path: Path) -> Path:
    """The path relative to this folder if it lies below it; else the path as it is."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
