"""Engines that take turns: each measurement runs alone, and each row is measured by all before the next."""

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engines.engine_process import Job
from benchmarks.engines.processes import EngineError, EngineProcess
from benchmarks.engines.results import append

GRACE_S = 60.0  # after the deadline, to end the measurement that runs
SHORT_S = 0.5  # a measurement that was shorter than this is
SHORT_REPEATS = 5  # done so many times in each later round
Task = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    """How often engines are measured, and for how long."""

    repeats: int  # rounds; short measurements are repeated within a round too
    once: Collection[str]  # backends whose long measurements are made in the first round alone
    start_s: float  # of a process, until its engine is ready
    process_s: float
    deadline: float  # `time.time()` after which nothing new begins, nor what took longer than what is left


class Turns:
    """The engines of one GPU, of which one measures at a time; rows go to the results of a folder."""

    def __init__(self, out: Path, limits: Limits) -> None:
        self._out = out
        self._limits = limits
        self._running: list[EngineProcess] = []
        self._failed: dict[EngineProcess, str] = {}
        self._took: dict[tuple[str, str], float] = defaultdict(float)
        self._left = 0

    def run(
        self,
        jobs: Sequence[Job],
        environment: Mapping[str, str],
        tasks: Sequence[Task],
        last_tasks: Sequence[Task] = (),
    ) -> bool:
        """Start all jobs' engines beside one another, and measure in rounds; returns whether all went well.

        After each measurement a row holds all repeats so far, so an early end loses nothing.

        Args:
            jobs: engines that fit into the GPU together.
            environment: variables of the processes.
            tasks: of each round.
            last_tasks: after all rounds, without a row.
        """
        kept: dict[tuple[str, int], dict[str, Any]] = defaultdict(dict)
        with ExitStack() as stopped:
            for job in jobs:
                self._running.append(EngineProcess(job, environment, self._out))
                stopped.callback(self._running[-1].stop)
            for process in self._running:
                self._start(process)
            for turn in range(self._limits.repeats):
                for number, task in enumerate(tasks):
                    for process in self._running:
                        if turn and self._is_done(process, task):
                            continue
                        row = kept[process.job.name, number]
                        if self._measure(process, task, row):
                            self._write(process, task | row)
            for process in self._running:
                for task in last_tasks:
                    self._measure(process, task, {})
            fine = [process.close(self._failed.get(process)) for process in self._running]
        if self._left:
            print(f"{self._left} measurements were left out, the time is up", flush=True)
        return all(fine) and self._left == 0

    def _is_done(self, process: EngineProcess, task: Task) -> bool:
        """Whether the first round is enough for this backend; short measurements need more."""
        long = self._took[process.job.name, str(task)] >= SHORT_S
        return long and process.job.backend in self._limits.once

    def _start(self, process: EngineProcess) -> None:
        """Wait until an engine is ready."""
        until = min(process.started + self._limits.start_s, self._until(process))
        try:
            self._write(process, {"kind": "start", **process.answer(until)})
        except EngineError as error:
            self._failed[process] = str(error)

    def _measure(self, process: EngineProcess, task: Task, row: dict[str, Any]) -> bool:
        """Measure once, or several times if it is short; returns whether there was time, and no failure."""
        key = process.job.name, str(task)
        if process in self._failed:
            return False
        if time.time() + self._took[key] > self._limits.deadline:
            self._left += 1
            return False
        try:
            for _ in range(SHORT_REPEATS if 0 < self._took[key] < SHORT_S else 1):
                began = time.time()
                gather(row, process.ask(task, self._until(process)))
                self._took[key] = time.time() - began
        except EngineError as error:
            self._failed[process] = str(error)
            return False
        return True

    def _until(self, process: EngineProcess) -> float:
        return min(process.started + self._limits.process_s, self._limits.deadline + GRACE_S)

    def _write(self, process: EngineProcess, row: dict[str, Any]) -> None:
        job = process.job
        append(self._out, [{"backend": job.backend, "mode": job.mode, "budget": job.budget, **row}])


def gather(row: dict[str, Any], answer: dict[str, Any]) -> None:
    """Add a repeat to a row: figures make lists of all repeats, and of all else the latest stays."""
    for name, value in answer.items():
        if isinstance(value, float):
            row.setdefault(name, []).append(value)
        else:
            row[name] = value
