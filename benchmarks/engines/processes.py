"""Run engines, each in a process of its own, and keep what they print."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.engines.engine_process import Job

SHOWN_LINES = 25  # of the output of a process that failed
GRACE_S = 60.0  # after the deadline, to end the measurement that runs


def run_job(job: Job, environment: Mapping[str, str], out: Path, process_s: float) -> bool:
    """Run a job's process until it ends or its time is up; returns whether all went well.

    Raises KeyboardInterrupt, after the processes are stopped.
    """
    started = time.time()
    name = "_".join(map(str, filter(None, (job.backend, job.mode, job.budget))))
    log = out / f"log_{name}.txt"
    command = [sys.executable, "-m", "benchmarks.engines.engine_process", job.text()]
    limit = max(1.0, min(process_s, job.deadline + GRACE_S - started))
    with log.open("w") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code: int | None = process.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            stop_all(process)
    how = f"none after {limit:.0f} s, so it was stopped" if code is None else str(code)
    print(f"{name}: exit {how}; {time.time() - started:.0f} s", flush=True)
    if code != 0:
        lines = log.read_text(errors="replace").splitlines()
        of_engine = [line for line in lines if line.startswith("(EngineCore")]
        print("\n".join("    " + line[:200] for line in (of_engine or lines)[-SHOWN_LINES:]), flush=True)
    return code == 0


def stop_all(process: subprocess.Popen[bytes]) -> None:
    """Stop a process and what it started: an engine's own process outlives its parent."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
