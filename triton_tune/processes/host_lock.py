"""A lock of all processes that share Triton's cache, so that one of them compiles for all."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from triton import knobs


@contextlib.contextmanager
def compile_lock() -> Iterator[bool]:
    """Hold the lock, a file beside the folders of Triton's cache; wait while another process holds it.

    Yields whether it had to wait. The system frees the lock when its holder ends, however it ends. Where a
    lock cannot be had, as in a folder that cannot be written, nothing is locked: processes may then compile
    the same kernels.
    """
    waited = False
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path = Path(knobs.cache.dir) / "compile_ahead.lock"
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("ab"))
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                waited = True
                fcntl.flock(file, fcntl.LOCK_EX)
            # A forked child may hold the file open, so closing it does not suffice.
            stack.callback(fcntl.flock, file, fcntl.LOCK_UN)
        yield waited
