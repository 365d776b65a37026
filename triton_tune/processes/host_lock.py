"""A lock of all processes that share Triton's cache, so that one of them compiles for all."""

import contextlib
import fcntl
import logging
from collections.abc import Iterator
from pathlib import Path

from triton import knobs

logger = logging.getLogger("triton_tune")


def lock_path() -> Path:
    """The file that is locked, beside the folders of Triton's cache; there once a process has compiled."""
    return Path(knobs.cache.dir) / "compile_ahead.lock"


@contextlib.contextmanager
def compile_lock() -> Iterator[None]:
    """Hold the lock; wait while another process holds it.

    The system frees it when its holder ends, however it ends. Where a lock cannot be had, as in a folder that
    cannot be written, nothing is locked: processes may then compile the same kernels.
    """
    path = lock_path()
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("ab"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                logger.info("another process compiles into %s: waiting for it", path.parent)
                fcntl.flock(file, fcntl.LOCK_EX)
            # A forked child may hold the file open, so closing it does not suffice.
            stack.callback(fcntl.flock, file, fcntl.LOCK_UN)
        except OSError as error:
            logger.info("no lock beside Triton's cache: %s", error)
        yield
