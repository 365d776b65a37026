"""The display of a fleet's run: a bar for each table on a terminal, elsewhere a line every 15 seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import NamedTuple, Self

from triton_tune.fleet.bench import FleetCounts
from triton_tune.run.progress import LINE_EVERY_S


class Line(NamedTuple):
    """The state of one table."""

    name: str
    what: str  # the round
    done: int
    total: int
    counts: FleetCounts
    rate: float  # visits a second, since the start
    left: float  # seconds of the budget

    def __str__(self) -> str:
        counts = self.counts
        lost = sum(counts.deaths.values())
        notes = [
            f"{counts.workers} workers",
            *([f"{counts.resting} resting"] if counts.resting else []),
            *([f"{lost} lost"] if lost else []),
            f"{self.rate:.1f} visits/s",
            *([f"{counts.failed_cells} failed cells"] if counts.failed_cells else []),
            f"{max(0.0, self.left):.0f} s left",
        ]
        return f"{self.name}: {self.what}, {self.done} of {self.total}; {', '.join(notes)}"


class Display:
    """Shows lines. `say` may be called by any thread."""

    def __init__(self) -> None:
        from rich.live import Live

        self._terminal = sys.stdout.isatty()
        self._live = Live(auto_refresh=False, transient=True)
        self._lock = threading.Lock()
        self._shown = self._said_waiting = 0.0

    def __enter__(self) -> Self:
        if self._terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            self._live.stop()

    def show(self, lines: Sequence[Line]) -> None:
        """Show the state of all tables."""
        from rich.text import Text

        if self._terminal:
            with self._lock:
                self._live.update(Text("\n".join(map(str, lines))), refresh=True)
        elif lines and time.monotonic() - self._shown > LINE_EVERY_S:
            self._shown = time.monotonic()
            for line in lines:
                self.say(str(line))

    def waiting(self, what: str) -> None:
        """Say now and then that the run waits for something."""
        if time.monotonic() - self._said_waiting > LINE_EVERY_S:
            self._said_waiting = time.monotonic()
            self.say(what)

    def say(self, text: str) -> None:
        """Print a line."""
        with self._lock:
            if self._terminal:
                self._live.console.print(text, markup=False, highlight=False)
            else:
                print(text, flush=True)
