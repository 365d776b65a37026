"""Ctrl-C in a terminal, which interrupts all processes of a command at once."""

import contextlib
import signal
from collections.abc import Iterator
from multiprocessing import resource_tracker


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Shield processes that start in this context from a terminal's interrupts, which wait for its end."""
    resource_tracker.ensure_running()  # as it ends a block when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # which processes inherit
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
