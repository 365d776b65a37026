"""The progress of a long command: one line on a terminal, nothing elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console

from treegen.crossval.parallel import ReportProgress


@contextlib.contextmanager
def progress() -> Iterator[ReportProgress]:
    """A function that shows progress while the block runs; the line is gone afterwards."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    with console.status("reading") as status:
        yield lambda what, done, total: status.update(f"{what}: {done} of {total}")
