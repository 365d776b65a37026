"""The one exception that a user of the compiler is meant to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path


class InputError(Exception):
    """Wrong input, told in one line: where it is, what is wrong and how to mend it.

    The command line prints it and exits with status 2; nothing has been written by then.
    """

    def __init__(self, where: Path | str, what: str, *, line: int | None = None) -> None:
        place = str(where) if line is None else f"{where}:{line}"
        super().__init__(one_line(f"{place}: {what}"))

    def __reduce__(self) -> tuple[Callable[[str], InputError], tuple[str]]:
        """Its line alone, so that it survives the way from one process to another."""
        return InputError.told, (str(self),)

    @classmethod
    def told(cls, line: str) -> InputError:
        """The error of a line that says all already."""
        return cls.__new__(cls, line)  # not __init__, which would compose the line once more


def one_line(text: str) -> str:
    """Text from outside (file names, cells) may hold line breaks or terminal escapes: show them escaped."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(value: object, limit: int = 60) -> str:
    """A value from an input file as a message quotes it: short, and unmistakably data."""
    if isinstance(value, Mapping):
        return "a mapping"
    try:
        text = repr(value)
    except ValueError:  # Python refuses to print integers of more than 4,300 digits
        return "a huge number"
    return text if len(text) <= limit else text[: limit - 3] + "..."


def reason(error: BaseException) -> str:
    """What an operating-system error says, without the file name that the message has already."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
