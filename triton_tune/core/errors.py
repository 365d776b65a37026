"""The exception for wrong use of a tuning command, and where in a user's files an error arose."""

import traceback
from collections.abc import Collection


class TuningError(Exception):
    """Wrong use or bad input; the message is one line that says what is wrong and how to mend it."""


class TuningWarning(UserWarning):
    """A message about a user's kernel, which a run prints once."""


def place_of(error: BaseException, files: Collection[str]) -> str | None:
    """`file:line` of the innermost frame in one of these files, of an error or of what caused it."""
    place = None
    cause: BaseException | None = error
    while cause is not None:
        for frame, line in traceback.walk_tb(cause.__traceback__):
            if frame.f_code.co_filename in files:
                place = f"{frame.f_code.co_filename}:{line}"
        cause = cause.__cause__
    return place


def in_one_line(error: BaseException) -> str:
    """What an error says, in one line of at most 200 characters, and its notes.

    Triton's compiler begins with a place, such as `at 12:8:`, and ends with what is wrong.
    """
    lines = str(error).strip().splitlines() or [""]
    notes = (f" ({note})" for note in getattr(error, "__notes__", ()))
    return lines[-1 if lines[0].startswith("at ") else 0][:200] + "".join(notes)
