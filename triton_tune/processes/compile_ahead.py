"""Parallel processes that compile kernels, each for a second or more, ahead into Triton's cache on disk."""

import contextlib
import math
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, as_completed, wait
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import forkserver
from types import ModuleType
from typing import Protocol, TypeVar

import torch
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend
from triton.runtime.errors import OutOfResources

from tuning_table.interrupts import without_interrupts

MAX_WORKERS = 30
OVERTIME_S = 120.0  # a job that still runs so long after the deadline is given up
PTXAS = "TRITON_PTXAS_PATH"


def default_workers() -> int:
    """One less than the processors that this process may use, at most 30, as each needs a GPU context."""
    has_affinity = hasattr(os, "sched_getaffinity")  # not on all systems
    processors = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 2
    return min(MAX_WORKERS, max(1, processors - 1))


class Job(Protocol):
    """A launch whose kernels are to be compiled. It is pickled for another process.

    needs: keys of the kernels that it launches. cost: is larger for kernels that compile longer.
    """

    @property
    def needs(self) -> frozenset[Hashable]: ...
    @property
    def cost(self) -> int: ...
    def run(self, device: torch.device) -> None: ...


AnyJob = TypeVar("AnyJob", bound=Job)


def minimal(jobs: Iterable[AnyJob], compiled: frozenset[Hashable] = frozenset()) -> list[AnyJob]:
    """Return jobs that compile everything that ``jobs`` need beyond ``compiled``, once, longest first."""
    seen = set(compiled)
    kept = []
    for job in sorted(jobs, key=lambda job: len(job.needs), reverse=True):
        if not job.needs <= seen:
            seen |= job.needs
            kept.append(job)
    return sorted(kept, key=lambda job: job.cost, reverse=True)


def run_jobs(jobs: Iterable[Job], device: torch.device) -> dict[Job, Exception]:
    """Run all jobs in this process, and return the errors of those that raise one."""
    failures: dict[Job, Exception] = {}
    on_gpu = device.type == "cuda"
    with torch.cuda.device(device) if on_gpu else contextlib.nullcontext():
        for job in jobs:
            try:
                job.run(device)
                if on_gpu:
                    torch.cuda.synchronize()
            except Exception as error:
                failures[job] = error
    return failures


def load_on(device: torch.device, load: Callable[[], object]) -> None:
    """Call `load` and use the device once, as the first use takes seconds in each process."""
    with contextlib.suppress(Exception):  # what needs it will raise it again
        load()
        if device.type == "cuda":
            square = torch.ones(16, 16, device=device)
            torch.mm(square, square)
            torch.cuda.synchronize(device)


def _failures(job: Job, device: torch.device, deadline: float) -> int | None:
    """Count failures of a job in a worker; the caller's own launch shows their messages. None: too late."""
    if time.monotonic() >= deadline:
        return None
    return sum(not isinstance(error, OutOfResources) for error in run_jobs([job], device).values())


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Start processes that do not import the script of this one, which may have no guard."""
    main, sys.modules["__main__"] = sys.modules["__main__"], ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def follow_parent(environment: Mapping[str, str] | None = None) -> None:
    """End this process when its parent ends, and keep a terminal's interrupts from it and its compilers.

    environment: all variables of this process from now on. A fork server may have begun with others.
    """
    os.setsid()
    if environment is not None:
        os.environ.clear()
        os.environ.update(environment)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def ptxas_differs(device: torch.device) -> bool:
    """Return whether PTXAS names a ptxas of another version than this process has in its cache keys.

    A key of Triton's cache holds the version of ptxas, which a process reads once. Inductor later sets the
    variable to PyTorch's ptxas. A new process would inherit it and compile under other keys, so this process
    would find none of its kernels.
    """
    path = os.environ.get(PTXAS)
    if path is None or device.type != "cuda" or torch.version.hip:
        return False
    try:
        version = subprocess.check_output([path, "--version"], text=True)
    except (OSError, subprocess.CalledProcessError):  # Triton takes its own
        return False
    major, minor = torch.cuda.get_device_capability(device)
    return version not in make_backend(GPUTarget("cuda", 10 * major + minor, 32)).hash()


def compile_environment(device: torch.device) -> dict[str, str]:
    """The variables of this process for one that compiles for the device."""
    environment = dict(os.environ)
    if ptxas_differs(device):  # Triton takes its own there
        environment.pop(PTXAS, None)
    return environment


@dataclass
class CompileCounts:
    jobs: int = 0  # that ran
    failed: int = 0  # of these
    broken: list[Job] = field(default_factory=list)  # jobs that killed their process


class CompileAhead:
    """Processes that compile, and are kept from call to call until `close`.

    Importing torch takes seconds, so one process does it, a fork server, which has no GPU context, and the
    others are its forks. Does nothing on the CPU, or with no workers.
    """

    def __init__(self, device: torch.device, workers: int | None = None) -> None:
        self._device = device
        self.workers = default_workers() if workers is None else workers
        self._compiled: frozenset[Hashable] = frozenset()
        self._pool: ProcessPoolExecutor | None = None
        self._loading: list[Future[None]] = []

    def load(self, load: Callable[[], object]) -> None:
        """Start all processes, each of which calls `load`, such as slow imports; do not wait for them."""
        if not self._idle:
            with without_interrupts(), without_main():
                pool = self._start()
                self._loading = [pool.submit(load_on, self._device, load) for _ in range(self.workers)]

    def await_loaded(self) -> None:
        """Wait for what `load` started."""
        wait(self._loading)

    def close(self) -> None:
        """Stop the processes, and give up what they are compiling."""
        if self._pool is not None:
            processes = list(self._pool._processes.values())
            self._pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()
            self._pool = None

    def has(self, job: Job) -> bool:
        """Return whether the job's kernels were compiled, or nothing is compiled ahead here."""
        return self._idle or job.needs <= self._compiled

    @property
    def _idle(self) -> bool:
        return self._device.type == "cpu" or self.workers == 0

    def compile(
        self,
        jobs: Iterable[Job],
        *,
        deadline: float = float("inf"),
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> CompileCounts:
        """Compile what ``jobs`` need and no earlier call compiled.

        deadline: on ``time.monotonic``; no job starts after it, and none goes on for long. progress: called
        with the number of jobs done and of all.
        """
        done = CompileCounts()
        left = dict.fromkeys([] if self._idle else minimal(jobs, self._compiled))
        total = len(left)

        def take(job: Job, failed: int | None) -> None:
            del left[job]
            if failed is not None:
                done.jobs += 1
                done.failed += failed
                self._compiled |= job.needs
                progress(done.jobs, total)

        while left:
            for job, failed in self._run([*left], deadline):
                take(job, failed)
            for suspect in [*left][: self.workers]:  # a process died while these ran; each runs again alone
                for job, failed in self._run([suspect], deadline):
                    take(job, failed)
                if suspect in left:
                    done.broken.append(suspect)
                    take(suspect, 0)
        return done

    def _run(self, jobs: Iterable[Job], deadline: float) -> Iterator[tuple[Job, int | None]]:
        """Each job as it ends, and what `_failures` returns; none after a process died or took too long."""
        futures: dict[Future[int | None], Job] = {}
        if self._pool is not None and self._pool._broken:  # since the last call, so no job is to blame
            self.close()
        try:
            with without_interrupts(), without_main():  # processes are started as jobs come in
                for job in jobs:
                    futures[self._start().submit(_failures, job, self._device, deadline)] = job
            left = None if math.isinf(deadline) else max(0.0, deadline - time.monotonic()) + OVERTIME_S
            for future in as_completed(futures, left):
                yield futures[future], future.result()
        except (BrokenExecutor, TimeoutError):
            self.close()

    def _start(self) -> ProcessPoolExecutor:
        if self._pool is None:
            forkserver.set_forkserver_preload([__name__])
            context = multiprocessing.get_context("forkserver")
            begin = partial(follow_parent, compile_environment(self._device))
            self._pool = ProcessPoolExecutor(self.workers, context, initializer=begin)
        return self._pool


def compile_in_parallel(jobs: Iterable[Job], device: torch.device, workers: int | None = None) -> str:
    """Compile what ``jobs`` need and return a line about it. Does nothing without a GPU."""
    start = time.monotonic()
    with contextlib.closing(CompileAhead(device, workers)) as processes:
        done = processes.compile(jobs)
    if not done.jobs:
        return "compiled nothing ahead"
    seconds = time.monotonic() - start
    failed = f"{done.failed} launches failed, {len(done.broken)} groups broke off"
    return f"compiled ahead: {done.jobs} launches in {processes.workers} processes, {seconds:.0f} s; {failed}"
