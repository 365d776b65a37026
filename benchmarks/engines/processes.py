"""Engines in processes of their own: start them, ask them for measurements, and keep what they print."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

from benchmarks.engines.engine_process import Job

SHOWN_LINES = 25  # of the output of a process that failed
END_S = 30.0  # for a process to end by itself
POLL_S = 0.2


class EngineError(Exception):
    """A process that ended, or did not answer in time."""


class EngineProcess:
    """The process of one job; stop it in any case."""

    def __init__(self, job: Job, environment: Mapping[str, str], out: Path) -> None:
        self.job = job
        self.started = time.time()
        self._log = out / f"log_{job.name}.txt"
        self._pipe, theirs = Pipe()
        command = [
            sys.executable,
            "-m",
            "benchmarks.engines.engine_process",
            job.text(),
            str(theirs.fileno()),
        ]
        with self._log.open("w") as file, theirs:
            self._process = subprocess.Popen(
                command,
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
        """Stop the process and what it started; may be called again."""
        stop_all(self._process)
        self._pipe.close()


def stop_all(process: subprocess.Popen[bytes]) -> None:
    """Stop a process and what it started: an engine's own process outlives its parent."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
