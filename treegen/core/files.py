"""Read files whose names and contents come from outside: every failure is one InputError."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from treegen.core.errors import InputError, table_errors_as_input_errors
from tuning_table import files

MAX_BYTES = 64 << 20  # of an input file
T = TypeVar("T")


def try_path(path: Path, look: Callable[[Path], T]) -> T:
    """`look(path)`, with InputError for names that no file can have: too long, with NUL, a loop of links."""
    with table_errors_as_input_errors():
        return files.try_path(path, look)


def read_bytes(path: Path, most: int = MAX_BYTES) -> bytes:
    """The content of a plain file of at most `most` bytes; never waits for a pipe. Raises InputError."""
    with table_errors_as_input_errors():
        return files.read_bytes(path, most)


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
