"""The exception for wrong input, and how messages quote text and values from outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tuning_table.errors import TableError
from tuning_table.errors import one_line as one_line
from tuning_table.errors import reason as reason
from tuning_table.errors import shown as shown

InputError = TableError
"""Wrong input of any kind. The message is one line: where the mistake is, what is wrong and how to mend it.

The command line prints it and exits with status 2. It is raised before anything is written.
"""


class InputErrors(InputError):
    """Wrong input in several places, as in a spec: a line for each mistake, which names its place."""

    def __init__(self, lines: str) -> None:
        Exception.__init__(self, lines)

    def __str__(self) -> str:
        return str(self.args[0])


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
        """Raise one error, with a line for each error that was kept, if there is one."""
        if self.messages:
            raise InputErrors("\n".join(self.messages))
