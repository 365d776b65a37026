"""A process that compiles kernels into Triton's cache while its caller goes on, as while a model loads.

It forks a process for each kernel, so one that ends its process ends no other. None uses a GPU, and all end
with the caller, which has no thread for this and nothing to do when it exits.
"""

import contextlib
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

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


class CacheFiller:
    """Compiles each ``NeededKernel`` that it is given for a device, in a process started for the first.

    While another process compiles into the cache, this one waits and compiles nothing, because afterwards the
    cache will hold much the same kernels.
    """

    def __init__(self, device: Any) -> None:
        self.ended: dict[str, int] = {}  # how the process of each kernel exited, by the kernel's key
        self._device = device
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, kernels: list[Any], workers: int | None = None) -> None:
        """Begin to compile these as well, `workers` at once (None: ``default_workers``), and return."""
        from triton_tune.processes.compile_ahead import compile_environment, default_workers

        processes = str(workers or default_workers())
        with contextlib.suppress(OSError):  # it cannot be started, or has ended
            if self._process is None:
                self._connection, theirs = Pipe()
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), processes],
                        env=compile_environment(self._device) | {"PYTHONPATH": os.pathsep.join(sys.path)},
                        pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        start_new_session=True,  # away from a terminal's interrupts, and a group of its own
                    )
            self._connection.send(kernels)

    def finish(self) -> bool:
        """Wait until nothing compiles, and return whether it was another process that compiled."""
        if self._process is None:
            return False
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.ended.update([self._connection.recv()])
        self._connection.close()
        waited = self._process.wait() == WAITED
        self._process = None
        return waited


WAITED = 3  # exit status


def main() -> None:
    """Run as the process of a ``CacheFiller``."""
    number, workers = map(int, sys.argv[1:])
    with compile_lock() as waited:
        try:
            if not waited:
                _fill(Connection(number), workers)
        except (EOFError, ConnectionError):  # the caller has ended
            os.killpg(0, signal.SIGKILL)
    os._exit(WAITED if waited else 0)  # Triton's libraries would complain of what they leave behind


def _fill(caller: Connection, workers: int) -> None:
    """Compile all kernels that the caller sends, longest first, and report each one to it."""
    import torch  # not before the lock, as it takes seconds

    from triton_tune.processes.compile_ahead import run_jobs

    cpu, fork = torch.device("cpu"), multiprocessing.get_context("fork")
    waiting, running = caller.recv(), dict[Any, tuple[Any, str]]()
    while waiting or running:
        waiting.sort(key=lambda kernel: kernel.cost)
        while waiting and len(running) < workers:
            kernel = waiting.pop()
            kernel.prepare()  # for later forks, too
            process = fork.Process(target=run_jobs, args=([kernel], cpu))
            process.start()
            running[process.sentinel] = process, kernel.key
        for ended in set(wait([caller, *running])) - {caller}:
            process, key = running.pop(ended)
            process.join()
            caller.send((key, process.exitcode))
        while caller.poll():
            waiting += caller.recv()


if __name__ == "__main__":
    main()
