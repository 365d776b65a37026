"""Recorded tables as the workers of a fleet: the same cells whoever measures them, at a speed of its own."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from triton_tune.core.problem import PlannedVisit, SearchProblem, Times
from triton_tune.fleet.calibration import EVERY_S
from triton_tune.fleet.shards import estimated_s
from triton_tune.fleet.station import Outcome, Work, WorkerFacts
from triton_tune.run.replay import COMPILE_S
from tuning_table.reader import read_run
from tuning_table.table import Cell, RecordedRun, Visit

CALIBRATION_US = 100.0


def replayed(times: Times, task: PlannedVisit) -> Visit:
    """The recorded cells: a cell's repeat `n` is its n-th record, and after the last the first again."""
    cells: Mapping[str, Sequence[Cell]] = times.measured(task.scenario)
    row = {config: cells[config][(task.repeat - 1) % len(cells[config])] for config in task.configs}
    return Visit(task.scenario, task.repeat, row)


def same_stack(recorded: RecordedRun) -> dict[str, str]:
    """The versions of a recorded table."""
    provenance = recorded.header.provenance
    return {key: str(provenance.get(key)) for key in ("driver", "torch", "triton", "source_hash")}


@dataclass(frozen=True)
class ReplayedWorker:
    """One worker that replays.

    second: the real seconds that a second of the estimate takes. speed: above 1 for a faster worker; its
    calibration does not depend on it. slowdown: of its calibration. dies_after: visits.
    """

    name: str
    second: float = 0.0
    speed: float = 1.0
    slowdown: float = 1.0
    dies_after: int | None = None
    versions: Mapping[str, str] | None = None  # in which it differs from the table


class ReplayStation:
    """Replays the table in `folder`, of which each process has a copy."""

    def __init__(self, folder: Path, worker: ReplayedWorker) -> None:
        recorded = read_run(folder)
        self._worker, self._times = worker, Times(recorded.visits)
        device = dict(recorded.header.provenance["device"])
        versions = {**same_stack(recorded), **(worker.versions or {})}
        device["name"] = versions.pop("device", device["name"])
        self.facts = WorkerFacts(worker.name, device, versions)
        self._visits = 0
        self._calibrated = 0.0

    def prepare(self, work: Work) -> Outcome:
        return self.visit(None)

    def visit(self, task: PlannedVisit | None) -> Outcome:
        worker = self._worker
        self._visits += task is not None
        if worker.dies_after is not None and self._visits > worker.dies_after:
            raise SystemExit(f"{worker.name} was preempted")
        seconds = 0.0 if task is None else estimated_s(len(task.configs)) * worker.second / worker.speed
        time.sleep(seconds)
        visit = None if task is None else replayed(self._times, task)
        calibration = None
        if task is None or time.monotonic() - self._calibrated > EVERY_S:
            self._calibrated = time.monotonic()
            calibration = CALIBRATION_US * worker.slowdown
        return Outcome(visit, seconds, calibration)


def compile_seconds(problem: SearchProblem, compiled: set[object], task: PlannedVisit) -> float:
    """Estimate the seconds that compiling takes for a visit, and add what it compiles to `compiled`."""
    shape = problem.shape(task.scenario)
    new = {(shape, config) for config in task.configs} - compiled
    compiled |= new
    return COMPILE_S * len(new)
