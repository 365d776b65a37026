"""A bench of one host's GPUs that notes which GPU measured each row, and how fast the GPU was then."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from triton_tune.bench.pool import GpuBench
from triton_tune.core.bench import Advance
from triton_tune.core.problem import PlannedVisit
from triton_tune.fleet.calibration import EVERY_S, TIMES, Calibration
from triton_tune.fleet.shards import estimated_s
from tuning_table.table import Visit
from tuning_table.visit_log import MeasuredBy, log_visits


class CalibratedBench:
    """Measures as `bench` does, and calibrates each GPU before and after about EVERY_S seconds of visits.

    A row's line in visits.csv has the slower of the two calibrations.
    """

    def __init__(self, bench: GpuBench, calibration: Calibration, folder: Path) -> None:
        self._bench, self._calibration, self._folder = bench, calibration, folder
        self._microseconds: dict[str, float | None] = {}
        self._since: list[MeasuredBy] = []  # lines since the last calibration

    def clock(self) -> float:
        return self._bench.clock()

    def compile(
        self, tasks: Sequence[PlannedVisit], until: float, advance: Advance
    ) -> tuple[PlannedVisit, ...]:
        if not self._microseconds:
            self._bench.compile([self._calibration.task], until, lambda done, total: None)
        return self._bench.compile(tasks, until, advance)

    def measure(self, tasks: Sequence[PlannedVisit], until: float) -> Iterator[Visit]:
        for part in self._parts(tasks):
            if self.clock() >= until:
                return
            if not self._microseconds:
                self._calibrate()
            for visit in self._bench.measure(part, until):
                worker = self._bench.last_worker
                line = MeasuredBy(
                    visit.scenario, visit.repeat, worker, self._microseconds.get(worker), slowdown=None
                )
                log_visits(self._folder, [line])
                self._since.append(line)
                yield visit
            self._calibrate()

    def _parts(self, tasks: Sequence[PlannedVisit]) -> Iterator[list[PlannedVisit]]:
        part: list[PlannedVisit] = []
        seconds = 0.0
        for task in tasks:
            part.append(task)
            seconds += estimated_s(len(task.configs)) / self._bench.num_devices
            if seconds >= EVERY_S:
                yield part
                part, seconds = [], 0.0
        if part:
            yield part

    def _calibrate(self) -> None:
        """Time the calibration on each GPU; rows of one that became slower get the longer time."""
        visits: dict[str, list[Visit]] = {}
        for _ in range(TIMES):
            for visit in self._bench.measure_on_each(self._calibration.task):
                visits.setdefault(self._bench.last_worker, []).append(visit)
        self._microseconds = {w: self._calibration.microseconds(found) for w, found in visits.items()}
        slower = []
        for line in self._since:
            now = self._microseconds.get(line.worker)
            if now is not None and now > (line.calibration_us or 0.0):
                slower.append(replace(line, calibration_us=now))
        if slower:
            log_visits(self._folder, slower)
        self._since = []
