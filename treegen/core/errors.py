"""The exception for wrong input, and how messages quote text and values from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tuning_table.errors import TableError
from tuning_table.errors import one_line as one_line
from tuning_table.errors import reason as reason
from tuning_table.errors import shown as shown


class InputError(Exception):
    """Wrong input. The message is one line: where the mistake is, what is wrong and how to mend it.

    A spec with several mistakes has a line for each.

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


class Mistakes:
    """Collects the errors of independent checks, to tell them all at once."""

    def __init__(self) -> None:
        self.messages: dict[str, None] = {}

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep an InputError of this context, and go on after it."""
        try:
            yield
        except InputError as error:
            self.messages.update(dict.fromkeys(str(error).split("\n")))

    def refuse(self) -> None:
        """Raise one InputError, with a line for each error that was kept, if there is one."""
        if self.messages:
            raise InputError.from_message("\n".join(self.messages))


@contextmanager
def table_errors_as_input_errors() -> Iterator[None]:
    """Turn the errors of `tuning_table` into InputErrors with the same message."""
    try:
        yield
    except TableError as error:
        raise InputError(error.where, error.what, line=error.line) from None
