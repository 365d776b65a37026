"""The exception of this package, and how its messages quote values."""

from collections.abc import Mapping
from pathlib import Path


class TableError(Exception):
    """A table that cannot be read or written: one line that says where and what, and often the remedy."""

    def __init__(self, where: Path | str, what: str, line: int | None = None) -> None:
        super().__init__(where, what, line)
        self.where, self.what, self.line = where, what, line

    def __str__(self) -> str:
        place = str(self.where) if self.line is None else f"{self.where}:{self.line}"
        return one_line(f"{place}: {self.what}")


def one_line(text: str) -> str:
    """Escape line breaks and terminal codes, which file names and cells may hold."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(value: object, limit: int = 60) -> str:
    """Quote a value of a file in a message, in at most `limit` characters."""
    if isinstance(value, Mapping):
        return "a mapping"
    try:
        text = repr(value)
    except ValueError:  # Python does not print integers of more than 4,300 digits
        return "a huge number"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def reason(error: BaseException) -> str:
    """The operating system's message, without the file name."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
