"""A process that compiles kernels into Triton's cache while its caller goes on, as while a model loads.

It forks a process for each kernel, so one that ends its process ends no other. None uses a GPU, and all end
with the caller, which has no thread for this and nothing to do when it exits.
"""

import contextlib
import fcntl
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

from triton import knobs


@contextlib.contextmanager
def compile_lock(meanwhile: Callable[[], object] = lambda: time.sleep(0.1)) -> Iterator[bool]:
    """Hold the lock, a file beside the folders of Triton's cache; wait while another process holds it.

    Yields whether it had to wait. The system frees the lock when its holder ends, however it ends. Where a
    lock cannot be had, as in a folder that cannot be written, nothing is locked: processes may then compile
    the same kernels.

    meanwhile: is called again and again while it waits.
    """
    waited = False
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            path = Path(knobs.cache.dir) / "compile_ahead.lock"
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(path.open("ab"))
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    waited = True
                    meanwhile()
            # A forked child may hold the file open, so closing it does not suffice.
            stack.callback(fcntl.flock, file, fcntl.LOCK_UN)
        yield waited


class CacheFiller:
    """Compiles each ``NeededKernel`` that it is given for a device, in a process that ends when idle.

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

        if self._process is not None and self._process.poll() is not None:
            self.finish()  # it had nothing left, and later ones need another process
        with contextlib.suppress(OSError):  # it cannot be started, or has ended
            if self._process is None:
                self._connection, theirs = Pipe()
                with theirs:
                    self._process = subprocess.Popen(
                        [sys.executable, "-P", "-m", __name__, str(theirs.fileno())],
                        env=compile_environment(self._device) | {"PYTHONPATH": os.pathsep.join(sys.path)},
                        pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        start_new_session=True,  # away from a terminal's interrupts, and a group of its own
                    )
            self._connection.send((kernels, workers or default_workers()))

    def finish(self) -> bool:
        """Wait until nothing compiles, and return whether it was another process that compiled."""
        if self._process is None:
            return False
        with contextlib.suppress(EOFError, OSError):
            self.ended.update(self._connection.recv())
        self._connection.close()
        waited = self._process.wait() == WAITED
        self._process = None
        return waited


WAITED = 3  # exit status


def main() -> None:
    """Run as the process of a ``CacheFiller``."""
    caller = Connection(int(sys.argv[1]))
    try:
        given = [caller.recv_bytes()]  # at once, as a caller with much to send waits for it

        def take() -> None:
            if caller.poll(0.1):
                given.append(caller.recv_bytes())

        with compile_lock(take) as waited:
            ended = {} if waited else _fill(caller, given)
        caller.send(ended)
    except (EOFError, ConnectionError):  # the caller has ended
        os.killpg(0, signal.SIGKILL)
    os._exit(WAITED if waited else 0)  # Triton's libraries would complain of what they leave behind


def _fill(caller: Connection, given: list[bytes]) -> dict[str, int]:
    """Compile all kernels that the caller sends, longest first; returns how the process of each exited."""
    import torch  # not before the lock, as it takes seconds

    from triton_tune.processes.compile_ahead import run_jobs

    cpu, fork = torch.device("cpu"), multiprocessing.get_context("fork")
    waiting, running, ended = list[Any](), dict[Any, tuple[Any, str]](), dict[str, int]()
    while given or waiting or running:
        while given:
            kernels, workers = pickle.loads(given.pop())
            waiting += kernels
        waiting.sort(key=lambda kernel: kernel.cost)
        while waiting and len(running) < workers:
            kernel = waiting.pop()
            kernel.prepare()  # for later forks, too
            process = fork.Process(target=run_jobs, args=([kernel], cpu))
            process.start()
            running[process.sentinel] = process, kernel.key
        for sentinel in set(wait([caller, *running])) - {caller}:
            process, key = running.pop(sentinel)
            process.join()
            ended[key] = process.exitcode
        while caller.poll():
            given.append(caller.recv_bytes())
    return ended


if __name__ == "__main__":
    main()
