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
from dataclasses import asdict, dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from benchmarks.engines.engine_process import Job

SHOWN_LINES = 25  # of the output of a process that failed
END_S = 30.0  # for a process to end by itself
POLL_S = 0.2
GRACE_S = 60.0  # after the deadline, to end the measurement that runs
RESULTS = "results.jsonl"
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


@dataclass(frozen=True)
class Limits:
    """How often engines are measured, and for how long."""

    repeats: int  # rounds
    answer_s: float  # of a start, and of a measurement
    deadline: float  # `time.time()` after which nothing new begins, nor what took longer than what is left


class EngineProcess:
    """The process of one job; stop it in any case."""

    def __init__(self, job: Job, environment: Mapping[str, str], out: Path, limits: Limits) -> None:
        self.job = job
        self.failure: str | None = None  # how it ended, or why it was stopped
        self.took: dict[int, float] = defaultdict(float)  # seconds of a task, by its number
        self._started, self._limits = time.time(), limits
        self._rows: dict[int, Row] = defaultdict(dict)
        self._log = out / f"log_{job.backend}.txt"
        self._pipe, theirs = Pipe()
        module = [sys.executable, "-m", "benchmarks.engines.engine_process"]
        with self._log.open("w") as file, theirs:
            self._process = subprocess.Popen(
                [*module, json.dumps(asdict(job)), str(theirs.fileno())],
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )

    def answer(self) -> Row | None:
        """Wait for the next answer; None, with `failure`, if the process ended or its time is up."""
        until = min(time.time() + self._limits.answer_s, self._limits.deadline + GRACE_S)
        with contextlib.suppress(EOFError, ConnectionResetError):
            while not self._pipe.poll(POLL_S):
                if self._process.poll() is not None:
                    break
                if time.time() > until:
                    self.failure = f"none after {time.time() - self._started:.0f} s, so it was stopped"
                    return None
            else:
                answer: Row = self._pipe.recv()
                return answer
        self.failure = str(self._process.wait(END_S))
        return None

    def measure(self, number: int, task: Row) -> Row | None:
        """Measure once; the row of all repeats so far, None after a failure."""
        began, row = time.time(), self._rows[number]
        with contextlib.suppress(BrokenPipeError):  # `answer` says how it ended
            self._pipe.send(task)
        if (answer := self.answer()) is None:
            return None
        self.took[number] = time.time() - began
        row |= task | {"seconds": [*row.get("seconds", ()), answer["seconds"]]}
        return row

    def close(self) -> bool:
        """End the process, and print how it ended; returns False after a failure, with its last lines."""
        how = self.failure
        if how is None:
            with contextlib.suppress(BrokenPipeError):
                self._pipe.send(None)
            try:
                how = str(self._process.wait(END_S))
            except subprocess.TimeoutExpired:
                how = "0, but the process was stopped"
        self.stop()
        print(f"{self.job.backend}: exit {how}; {time.time() - self._started:.0f} s", flush=True)
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


def take_turns(
    jobs: Sequence[Job], environment: Mapping[str, str], tasks: Sequence[Row], out: Path, limits: Limits
) -> bool:
    """Start the engines of all jobs side by side, and measure in rounds; returns whether all went well.

    After each measurement a row holds all repeats so far, so an early end loses nothing.

    Args:
        jobs: engines that fit into the GPU together.
        environment: variables of the processes.
        tasks: of each round.
        out: the folder of the results.
    """
    left = 0
    with ExitStack() as stopped:
        engines: list[EngineProcess] = []
        for job in jobs:
            engines.append(EngineProcess(job, environment, out, limits))
            stopped.callback(engines[-1].stop)

        def write(engine: EngineProcess, kind: str, row: Row | None) -> None:
            if row is not None:
                append(out, {"backend": engine.job.backend, "kind": kind} | row)

        for engine in engines:
            write(engine, "start", engine.answer())
        for _ in range(limits.repeats):
            for number, task in enumerate(tasks):
                for engine in engines:
                    if engine.failure is not None:
                        continue
                    if time.time() + engine.took[number] > limits.deadline:
                        left += 1
                    else:
                        write(engine, "latency", engine.measure(number, task))
        fine = [engine.close() for engine in engines]
    if left:
        print(f"{left} measurements were left out, the time is up", flush=True)
    return all(fine) and left == 0
