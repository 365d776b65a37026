"""The one exception that a user of the compiler is meant to see."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tuning_table.errors import one_line as one_line
from tuning_table.errors import reason as reason
from tuning_table.errors import shown as shown


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
