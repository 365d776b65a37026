"""The exception for wrong input, and how messages quote text and values from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path


class InputError(Exception):
    """Wrong input. The message is one line: where the mistake is, what is wrong and how to mend it.

    The command line prints it and exits with status 2. It is raised before anything is written.
    """

    def __init__(self, where: Path | str, what: str, *, line: int | None = None) -> None:
        place = str(where) if line is None else f"{where}:{line}"
        super().__init__(one_line(f"{place}: {what}"))

    def __reduce__(self) -> tuple[Callable[[str], InputError], tuple[str]]:
        """Pickle the message alone, so that the error can pass from one process to another."""
        return InputError.from_message, (str(self),)

    @classmethod
    def from_message(cls, message: str) -> InputError:
        """The error with a message that names its place already."""
        return cls.__new__(cls, message)  # __init__ would put a place before the message


def one_line(text: str) -> str:
    """The text with line breaks and terminal escapes escaped; file names and cells may hold them."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(value: object, limit: int = 60) -> str:
    """A value from an input file as a message quotes it: Python's spelling, at most `limit` characters."""
    if isinstance(value, Mapping):
        return "a mapping"
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of more than 4,300 digits
        return "a huge number"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def reason(error: BaseException) -> str:
    """The message of an error; of an operating-system error without the file name."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
