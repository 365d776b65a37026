"""Processes that judge cases within limits of time and memory; what hangs or dies fails its case."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from verification.hostile import case
from verification.hostile.case import FAILED, Outcome

SECONDS = 60.0
"""What takes longer hangs."""
_MEMORY = 4 << 30
_START = 120.0
"""Seconds for a process to import treegen and to build the project that it damages."""


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    number: int | None = None
    since: float = field(default_factory=time.monotonic)

    def hand(self, number: int) -> None:
        self.number, self.since = number, time.monotonic()
        self.pipe.send(number)

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def judged(seed: int, numbers: range, jobs: int) -> Iterator[tuple[int, Outcome, float]]:
    """Every case's number, outcome and seconds, as they come in."""
    # One thread a process: what a thread pool maps counts against the memory limit.
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    pending = iter(numbers)
    workers = [_started(seed) for _ in range(jobs)]
    try:
        while workers:
            wait([worker.pipe for worker in workers], timeout=1.0)
            for worker in list(workers):
                outcome = _outcome(worker, seed)
                if outcome is None:
                    continue
                if worker.number is not None:
                    yield worker.number, outcome, time.monotonic() - worker.since
                workers.remove(worker)
                if not worker.process.is_alive():
                    worker = _started(seed)
                elif (number := next(pending, None)) is None:
                    worker.stop()
                    continue
                else:
                    worker.hand(number)
                workers.append(worker)
    finally:
        for worker in workers:
            worker.stop()


_READY = Outcome("", "", "")


def _outcome(worker: _Worker, seed: int) -> Outcome | None:
    """What a worker has to say, None if nothing yet; one that says nothing for too long is stopped."""
    limit = _START if worker.number is None else SECONDS
    try:
        if worker.pipe.poll():
            found: Outcome = worker.pipe.recv()
            return found
        if time.monotonic() - worker.since < limit:
            return None
        why = f"hangs: more than {limit:.0f} s"
    except EOFError:
        why = "the process died"
    worker.stop()
    if worker.number is None:
        raise RuntimeError(f"no process for cases: {why}")
    found_case, command, _ = case.case(seed, worker.number)
    return Outcome(found_case.kind, command.words[0], FAILED, why)


def _started(seed: int) -> _Worker:
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_work, args=(there, seed))
    process.start()
    there.close()
    return _Worker(process, here)


def _work(pipe: Connection, seed: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - for as long as the process lives
    with contextlib.suppress(ImportError):  # it writes a cache of fonts when it is first imported
        importlib.import_module("matplotlib.font_manager")
    case.built_project()  # all that treegen imports on the way is imported now
    pipe.send(_READY)
    while True:
        pipe.send(case.run(seed, pipe.recv()))
