"""The progress of a run: a bar on a terminal, elsewhere a line every 15 seconds."""

import sys
import time
from collections.abc import Callable
from typing import Self

LINE_EVERY_S = 15.0


class Progress:
    """Shows the current round, its progress and the seconds left; calls `tick` after every step."""

    def __init__(self, budget: float, spent: float, tick: Callable[[], None]) -> None:
        self._tick = tick
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn  # --help needs no extra
        from rich.progress import Progress as Bar

        self._end = time.monotonic() + budget - spent
        self._line = 0.0
        self._what, self._total = "", 0
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
        self._bar = Bar(*columns, TextColumn("{task.fields[left]}"), disable=not sys.stdout.isatty())
        self._task = self._bar.add_task("starting", total=None, left="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._bar.remove_task(self._task)  # rich keeps the old total if the new one is None
        self._task = self._bar.add_task(what, total=total or None, left=self._left())
        self._say(0)

    def advance(self, done: int) -> None:
        self._tick()
        self._bar.update(self._task, completed=done, left=self._left())
        if time.monotonic() - self._line > LINE_EVERY_S:
            self._say(done)

    def _say(self, done: int) -> None:
        if self._bar.disable:
            self._line = time.monotonic()
            done_of = f"{done} of {self._total}, " if self._total else ""
            print(f"{self._what}: {done_of}{self._left()}", flush=True)

    def _left(self) -> str:
        return f"{max(0.0, self._end - time.monotonic()):.0f} s left of the budget"
