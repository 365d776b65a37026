"""Engines in processes of their own that take turns.

Each measurement runs alone, and each row is measured by all engines of a GPU before the next.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from benchmarks.engines.engine_process import Job

SHOWN_LINES = 25  # of the output of a process that failed
END_S = 30.0  # for a process to end by itself
POLL_S = 0.2
GRACE_S = 60.0  # after the deadline, to end the measurement that runs
SHORT_S = 0.5  # a measurement that was shorter than this is
SHORT_REPEATS = 5  # done this many times in each later round
RESULTS = "results.jsonl"
Task = dict[str, Any]
Row = dict[str, Any]


def append(folder: Path, row: Row) -> None:
    """Add a row to a folder's results."""
    with (folder / RESULTS).open("a") as file:
        file.write(json.dumps(row) + "\n")


def read(folder: Path) -> list[Row]:
    """The rows of a folder. A process that was stopped may leave half a line, which is skipped."""
    path, rows = folder / RESULTS, []
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(json.JSONDecodeError):
            rows.append(json.loads(line))
    return rows


class EngineError(Exception):
    """A process that ended, or did not answer in time."""


class EngineProcess:
    """The process of one job; stop it in any case."""

    def __init__(self, job: Job, environment: Mapping[str, str], out: Path) -> None:
        self.job = job
        self.started = time.time()
        self._log = out / f"log_{job.name}.txt"
        self._pipe, theirs = Pipe()
        module = [sys.executable, "-m", "benchmarks.engines.engine_process"]
        with self._log.open("w") as file, theirs:
            self._process = subprocess.Popen(
                [*module, job.text(), str(theirs.fileno())],
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    def ask(self, task: dict[str, Any], until: float) -> dict[str, Any]:
        """Let the engine measure; raises as ``answer``."""
        with contextlib.suppress(BrokenPipeError):  # ``answer`` says how it ended
            self._pipe.send(task)
        return self.answer(until)

    def answer(self, until: float) -> dict[str, Any]:
        """Wait for the next answer.

        Raises EngineError if the process ended, or after `until`, as `time.time` has it.
        """
        with contextlib.suppress(EOFError, ConnectionResetError):
            while not self._pipe.poll(POLL_S):
                if self._process.poll() is not None:
                    break
                if time.time() > until:
                    raise EngineError(f"none after {time.time() - self.started:.0f} s, so it was stopped")
            else:
                answer: dict[str, Any] = self._pipe.recv()
                return answer
        raise EngineError(str(self._process.wait(END_S)))

    def close(self, failure: str | None = None) -> bool:
        """End the process, and print how it ended; returns False after a failure, with its last lines."""
        how = failure
        if how is None:
            with contextlib.suppress(BrokenPipeError):
                self._pipe.send(None)
            try:
                how = str(self._process.wait(END_S))
            except subprocess.TimeoutExpired:
                how = "0, but the process was stopped"
        self.stop()
        print(f"{self.job.name}: exit {how}; {time.time() - self.started:.0f} s", flush=True)
        fine = how.startswith("0")
        if not fine:
            lines = self._log.read_text(errors="replace").splitlines()
            of_engine = [line for line in lines if line.startswith("(EngineCore")]
            print("\n".join("    " + line[:200] for line in (of_engine or lines)[-SHOWN_LINES:]), flush=True)
        return fine

    def stop(self) -> None:
        """Stop the process and what it started, as an engine outlives its parent; may be called again."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._pipe.close()


@dataclass(frozen=True)
class Limits:
    """How often engines are measured, and for how long."""

    repeats: int  # rounds; short measurements are repeated within a round too
    process_s: float  # of a process
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
    ) -> bool:
        """Start the engines of all jobs side by side, and measure in rounds; returns whether all went well.

        After each measurement a row holds all repeats so far, so an early end loses nothing.

        Args:
            jobs: engines that fit into the GPU together.
            environment: variables of the processes.
            tasks: of each round.
        """
        kept: dict[tuple[str, int], dict[str, Any]] = defaultdict(dict)
        with ExitStack() as stopped:
            for job in jobs:
                self._running.append(EngineProcess(job, environment, self._out))
                stopped.callback(self._running[-1].stop)
            for process in self._running:
                self._start(process)
            for _ in range(self._limits.repeats):
                for number, task in enumerate(tasks):
                    for process in self._running:
                        row = kept[process.job.name, number]
                        if self._measure(process, task, row):
                            self._write(process, {"kind": "latency", **task, **row})
            fine = [process.close(self._failed.get(process)) for process in self._running]
        if self._left:
            print(f"{self._left} measurements were left out, the time is up", flush=True)
        return all(fine) and self._left == 0

    def _start(self, process: EngineProcess) -> None:
        """Wait until an engine is ready."""
        try:
            self._write(process, {"kind": "start", **process.answer(self._until(process))})
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
        append(self._out, {"backend": job.backend, "mode": job.mode, **row})


def gather(row: dict[str, Any], answer: dict[str, Any]) -> None:
    """Add a repeat to a row: figures make lists of all repeats, and of all else the latest stays."""
    for name, value in answer.items():
        if isinstance(value, float):
            row.setdefault(name, []).append(value)
        else:
            row[name] = value
