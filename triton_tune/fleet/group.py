"""The search of a fleet for the table of one GPU model."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from triton_tune.core.errors import TuningError
from triton_tune.core.problem import Times
from triton_tune.fleet.bench import FleetBench, FleetCounts, FleetStopped, Records
from triton_tune.fleet.calibration import calibration_of
from triton_tune.fleet.display import Display, Line
from triton_tune.fleet.plan import FleetPlan, Prepared, Source
from triton_tune.fleet.station import Work, WorkerFacts
from triton_tune.run.fill import GO_ON, SUMMARY_EVERY_S, lines_of, summarise
from triton_tune.search.loop import tune
from triton_tune.search.strategies import STRATEGIES
from tuning_table import TableError
from tuning_table.table import Visit
from tuning_table.visit_log import MeasuredBy, log_visits


class Group(threading.Thread):
    """The search for the table of one GPU model, in a thread of its own.

    facts: of its first worker. crew: takes its workers. result: lines to print at the end. error: one line.
    """

    def __init__(
        self,
        source: Source,
        plan: FleetPlan,
        prepared: Prepared,
        facts: WorkerFacts,
        display: Display,
        stop: threading.Event,
    ) -> None:
        super().__init__(name=str(facts.device["name"]), daemon=True)
        self.facts, self._plan, self._prepared, self._display = facts, plan, prepared, display
        self.error: str | None = None
        self.result: list[str] = []
        self._table = prepared.create()
        self._times = Times(self._table.visits)
        self._rows: list[Visit] = []  # recorded, and not yet on disk
        self._spent = self._table.header.seconds
        self.crew = source.crew(Work(prepared.configs, calibration_of(prepared.problem)))
        records = Records(self._log, self._flush, self._withdraw, display.say)
        self._bench = FleetBench(self.crew, prepared.problem, records, stop)
        self._begun = self._bench.clock()
        self._watcher = _Watcher(self._table.folder.name, plan.budget - self._spent, self._bench, self._save)

    @property
    def deaths(self) -> Counter[str]:
        """How often workers of a name were lost."""
        return self._bench.counts.deaths

    def line(self) -> Line:
        return self._watcher.line()

    def run(self) -> None:
        """Search until the end, and leave what it found in `result` or `error`."""
        with self._table:
            try:
                self._search()
            except FleetStopped:
                kept = f"{self._table.folder} keeps {self._times.num_visits} rows"
                self.result = [f"stopped; {kept}; the same command goes on from there"]
            except (TuningError, TableError) as error:
                self.error = str(error)
            except Exception as error:  # a thread's traceback would be lost in the display
                self.error = f"{self._table.folder}: {type(error).__name__}: {error}"
            finally:
                try:
                    self._flush()
                    if not self.result or self.result[0].startswith("stopped"):
                        self._save(finished=False)
                except TableError as error:
                    self.error = self.error or str(error)

    def _search(self) -> None:
        plan, problem = self._plan, self._prepared.problem
        strategy = STRATEGIES[plan.strategy](problem)
        begun = self._begun = self._bench.clock()
        if self._spent >= plan.budget:
            self.result = [f"{self._table.folder}: the budget of {plan.budget:.0f} s is used up; {GO_ON}"]
            return
        self._prepared.begin(self._table)
        finished = False
        while True:
            spent = self._spent + self._bench.clock() - begun
            finished = tune(
                strategy,
                self._bench,
                self._times,
                self._rows.append,
                self._watcher,
                budget=plan.budget,
                spent=min(spent, plan.budget),
            )
            if not (self._bench.confirm() and finished):
                break
        summary = self._save(finished)
        end = "nothing is left to measure" if finished else f"the budget is used up; {GO_ON}"
        self.result = [f"{self._table.folder}: {end}", *lines_of(summary, problem, self._times)]

    def _save(self, finished: bool = False) -> dict[str, object]:
        seconds = self._spent + self._bench.clock() - self._begun
        summary = summarise(self._prepared.problem, self._times, seconds, finished)
        self._table.summarise(summary)
        return summary

    def _log(self, lines: Sequence[MeasuredBy]) -> None:
        log_visits(self._table.folder, lines)

    def _flush(self) -> None:
        rows, self._rows[:] = list(self._rows), []
        if rows:
            self._table.append_all(rows)

    def _withdraw(self, visits: Sequence[Visit]) -> None:
        self._table.withdraw([(visit.scenario, visit.repeat) for visit in visits])
        for visit in visits:
            self._times.withdraw(visit)


@dataclass
class _Watcher:
    """What the display shows of a search; written by its thread."""

    name: str
    left: float
    bench: FleetBench
    save: Callable[[], object]
    what: str = "starting"
    total: int = 0
    done: int = 0
    written: float = field(default_factory=time.monotonic)
    start: float = field(default_factory=time.monotonic)

    def begin(self, what: str, total: int) -> None:
        if not what.startswith("compile for"):  # workers compile on their own
            self.what, self.total, self.done = what, total, 0

    def advance(self, done: int) -> None:
        self.done = done
        if time.monotonic() - self.written > SUMMARY_EVERY_S:
            self.written = time.monotonic()
            self.save()

    def line(self) -> Line:
        counts: FleetCounts = self.bench.counts
        seconds = max(0.1, time.monotonic() - self.start)
        return Line(
            self.name, self.what, self.done, self.total, counts, counts.visits / seconds, self.left - seconds
        )
