"""Fleets that replay a recorded table, and what one run of the same search gives."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from attn_kernels.tuning.space.space import ATTENTION
from triton_tune.core.problem import Times
from triton_tune.fleet.replay import replayed
from triton_tune.run.replay import problem_of
from triton_tune.search.strategies import STRATEGIES
from tuning_table import read_run
from tuning_table.table import RecordedRun, Visit

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "tuning_data/unified_attention/untuned_nvidia_h200"


@cache
def single_run(strategy: str) -> tuple[Visit, ...]:
    """The visits of a search without a fleet."""
    recorded = read_run(TABLE)
    cells, times, visits = Times(recorded.visits), Times(), []
    search = STRATEGIES[strategy](problem_of(recorded, ATTENTION))
    while (planned := search.next_round(times, 0.0)) is not None:
        for task in planned.tasks:
            visits.append(replayed(cells, task))
            times.add(visits[-1])
    return tuple(visits)


def same_rows(found: RecordedRun, expected: tuple[Visit, ...]) -> None:
    """Fail unless the table holds exactly these rows, once each."""
    rows = {(visit.scenario, visit.repeat): dict(visit.cells) for visit in found.visits}
    assert len(rows) == len(found.visits)
    assert rows == {(visit.scenario, visit.repeat): dict(visit.cells) for visit in expected}


def wait_for_rows(folder: Path, rows: int, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not (folder / "times.csv").exists() or (folder / "times.csv").read_bytes().count(b"\n") <= rows:
        assert time.monotonic() < end
        time.sleep(0.02)


@contextlib.contextmanager
def command(out: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A driver in a process of its own, with two workers."""
    run = [sys.executable, "-m", "benchmarks.fleet.replayed", str(TABLE), "--out", str(out)]
    run += ["--strategy", "full", "--workers", "2", *arguments]
    with subprocess.Popen(run, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
