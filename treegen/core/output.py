"""Standard output whose reader may leave before the end, as `| head` does."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def ignore_closed_pipe() -> Iterator[None]:
    """Print until the reader closes the pipe, and drop the rest: the command has files to write."""
    try:
        yield
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:  # rich turns the first into the second
        if not isinstance(error, BrokenPipeError) and not isinstance(error.__context__, BrokenPipeError):
            raise
        with Path(os.devnull).open("w") as nothing:
            os.dup2(nothing.fileno(), sys.stdout.fileno())
