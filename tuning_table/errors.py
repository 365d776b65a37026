"""The exception of this package, and how its messages quote values."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path


class TableError(Exception):
    """A table that cannot be read or written: one line that says where and what, and often the remedy."""

    def __init__(self, where: Path | str, what: str, line: int | None = None) -> None:
        super().__init__(where, what, line)
        self.where, self.what, self.line = where, what, line

    def __str__(self) -> str:
        place = str(self.where) if self.line is None else f"{self.where}:{self.line}"
        return one_line(f"{place}: {self.what}")


class TableErrors(TableError):
    """Several mistakes in one file: a line for each, which names its place."""

    def __init__(self, lines: str) -> None:
        Exception.__init__(self, lines)

    def __str__(self) -> str:
        return str(self.args[0])


class Mistakes:
    """Collects the errors of independent checks, to tell them all at once, and each once."""

    def __init__(self) -> None:
        self._errors: dict[str, TableError] = {}  # by their lines

    @contextmanager
    def collect(self) -> Iterator[None]:
        """Keep a TableError of this context, and go on after it."""
        try:
            yield
        except TableError as error:
            for line in str(error).split("\n"):
                self._errors.setdefault(line, error)

    def refuse(self) -> None:
        """Raise what was collected, if anything was: one error, with a line for each mistake."""
        if len(self._errors) == 1:
            raise next(iter(self._errors.values()))
        if self._errors:
            raise TableErrors("\n".join(self._errors))


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
