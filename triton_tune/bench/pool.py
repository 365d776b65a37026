"""A bench of GPUs: one process each, which get visits as they become free."""

import contextlib
import math
import multiprocessing
import random
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

import torch

from triton_tune.bench.worker import Begin, Prepare, Try, serve
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import Advance, PlannedVisit, SearchProblem
from triton_tune.processes.compile_ahead import CompileAhead, Job
from tuning_table.interrupts import without_interrupts
from tuning_table.table import Cell, Failure, Visit

START_S = 180.0  # a process has this long to get its GPU
SILENT_S = 120.0  # a process may take this long for a cell, most of it to compile
MOST_BROKEN = 50  # after this many broken processes the run ends, as the device is at fault

START_METHOD: Final = "spawn"  # a forked process cannot use the GPU

CRASHED = "ended its process"
HUNG = "took longer than 120 s"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a command measures of one kernel on one GPU model."""

    scenarios: Mapping[str, Any]  # by id; pickled for the processes
    configs: Mapping[str, Hashable]  # by id
    prepare: Prepare  # pickled as well
    job_for: Callable[[Any, Any, torch.device], Job]  # compiles what a config launches in a scenario
    launches: Callable[[Any], Sequence[Hashable]] = lambda scenario: ()  # configs that `prepare` launches
    kernel: str  # its name in run.yaml
    features: tuple[str, ...]
    problem: SearchProblem
    rows: Sequence[Mapping[str, str | int]]  # `configs` of run.yaml
    lines: Sequence[str]  # describe it
    source_hash: str  # of all code on which the times depend
    timing: str  # on a GPU
    scenario_set: str
    provenance: Mapping[str, Any] = field(default_factory=dict)  # further keys of run.yaml
    # By scenario, the id of the config that the generated module launches; empty without one.
    chosen: Callable[[], Mapping[str, str]] = dict


@dataclass
class _Visiting:
    task: PlannedVisit
    left: list[str]  # the configs to measure, the next one last
    cells: dict[str, Cell] = field(default_factory=dict)
    trying: str | None = None  # None while the scenario is prepared
    prepared_again: bool = False  # a process ended while it prepared the scenario

    def fail(self, cell: Cell) -> None:
        self.cells.update(dict.fromkeys(self.left, cell))
        self.left.clear()


class _Worker:
    """A process with a GPU, and its current visit."""

    def __init__(self, device: torch.device, load: Callable[[], object]) -> None:
        self.device = device
        self._load = load
        self.visiting: _Visiting | None = None
        self.heard = 0.0
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context(START_METHOD)
        self.connection: Connection
        self.connection, theirs = context.Pipe()
        given = theirs, str(self.device), self._load
        self.process: BaseProcess = context.Process(target=serve, args=given, daemon=True)
        with without_interrupts():
            self.process.start()
        theirs.close()

    def await_ready(self) -> None:
        """Raises TuningError if the process does not start."""
        with contextlib.suppress(EOFError):
            if self.connection.poll(START_S):
                self.connection.recv()
                return
        raise TuningError(f"{self.device}: its process did not start; its message, if any, is above")

    def ask(self, request: Begin | Try) -> None:
        self.heard = time.monotonic()
        with contextlib.suppress(OSError):  # the process has ended, which is noticed when it is listened to
            self.connection.send(request)

    def stop(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.join()


class GpuBench:
    """Measures on `devices`, which are of one model.

    Its processes start at once, and `begin` waits for them, so the caller can prepare its workload in the
    meantime. load: imports what measuring and compiling need; each process calls it as it starts.
    """

    def __init__(
        self,
        devices: Sequence[torch.device],
        compile_workers: int | None = None,
        load: Callable[[], object] = bool,
    ) -> None:
        self._broken = 0
        self._told: set[str] = set()
        self._compiler = CompileAhead(devices[0], compile_workers)
        self._compiler.load(load)
        self._workers = [_Worker(device, load) for device in devices]

    def begin(self, *workloads: Workload) -> None:
        """Wait until all processes have started, so that no budget pays for it. Raises TuningError.

        workloads: what is to be measured; no two have scenarios with one name.
        """
        self._workloads = {scenario: workload for workload in workloads for scenario in workload.scenarios}
        for worker in self._workers:
            worker.await_ready()
        self._compiler.await_loaded()

    def close(self) -> None:
        """End all processes; the current visits are lost."""
        self._compiler.close()
        for worker in self._workers:
            worker.stop()

    def clock(self) -> float:
        return time.monotonic()

    def compile(
        self, tasks: Sequence[PlannedVisit], until: float, advance: Advance
    ) -> tuple[PlannedVisit, ...]:
        device = self._workers[0].device
        jobs: dict[tuple[PlannedVisit, str], Job] = {}
        first: list[Job] = []
        for task in tasks:
            workload = self._workloads[task.scenario]
            scenario = workload.scenarios[task.scenario]
            first += [workload.job_for(scenario, config, device) for config in workload.launches(scenario)]
            for config in task.configs:
                jobs[task, config] = workload.job_for(scenario, workload.configs[config], device)
        self._compiler.compile(dict.fromkeys([*first, *jobs.values()]), deadline=until, progress=advance)
        has = self._compiler.has
        kept = [replace(task, configs=tuple(c for c in task.configs if has(jobs[task, c]))) for task in tasks]
        return tuple(task for task in kept if task.configs)

    def measure(self, tasks: Sequence[PlannedVisit], until: float) -> Iterator[Visit]:
        """Hand out visits until `until`, and listen until nothing is under way."""
        queue = deque(tasks)
        for worker in self._workers:
            worker.visiting = None
        while True:
            for worker in self._workers:
                if worker.visiting is None and queue and self.clock() < until:
                    order = list((task := queue.popleft()).configs)
                    random.Random(f"{task.scenario}/{task.repeat}").shuffle(order)
                    worker.visiting = _Visiting(task, order)
                    self._prepare(worker, task)
            busy = [worker for worker in self._workers if worker.visiting is not None]
            if not busy:
                return
            heard = wait([worker.connection for worker in busy], timeout=1.0)
            for worker in busy:
                visiting = worker.visiting
                assert visiting is not None
                if worker.connection in heard:
                    self._listen(worker, visiting)
                elif time.monotonic() - worker.heard > SILENT_S and not worker.connection.poll():
                    self._restart(worker, visiting, HUNG)
                if worker.visiting is None:
                    yield Visit(visiting.task.scenario, visiting.task.repeat, visiting.cells)

    def _prepare(self, worker: _Worker, task: PlannedVisit) -> None:
        workload = self._workloads[task.scenario]
        worker.ask(Begin(workload.prepare, workload.scenarios[task.scenario], task.repeat))

    def _listen(self, worker: _Worker, visiting: _Visiting) -> None:
        try:
            answer = worker.connection.recv()
        except (EOFError, OSError):
            self._restart(worker, visiting, CRASHED)
            return
        if isinstance(answer, str):
            if answer not in self._told:
                self._told.add(answer)
                print(f"note: {answer}", flush=True)
            return
        if visiting.trying is not None:
            visiting.cells[visiting.trying] = answer
        elif answer is not None:
            visiting.fail(answer)
        if not visiting.left:
            worker.visiting = None
            return
        visiting.trying = visiting.left.pop()
        times = [cell for cell in visiting.cells.values() if not isinstance(cell, Failure)]
        configs = self._workloads[visiting.task.scenario].configs
        worker.ask(Try(configs[visiting.trying], min(times, default=math.inf)))

    def _restart(self, worker: _Worker, visiting: _Visiting, reason: str) -> None:
        """Replace a process that crashed or hangs; the config that it was asked for has failed."""
        self._broken += 1
        worker.stop()
        if self._broken > MOST_BROKEN:
            raise TuningError(f"{worker.device}: {self._broken} processes broke; the rows so far are kept")
        worker.start()
        worker.await_ready()
        if visiting.trying is not None:
            visiting.cells[visiting.trying] = Failure(reason)
        elif visiting.prepared_again:
            visiting.fail(Failure(reason))
        visiting.prepared_again = visiting.trying is None
        visiting.trying = None
        if not visiting.left:
            worker.visiting = None
        else:
            self._prepare(worker, visiting.task)
