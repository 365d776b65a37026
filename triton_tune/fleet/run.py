"""A run on a fleet: for each GPU model a table, and a search of its own in a thread of its own."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from triton_tune.core.errors import TuningError
from triton_tune.core.problem import SearchProblem, Times
from triton_tune.fleet.bench import FleetBench, FleetCounts, FleetStopped, Records
from triton_tune.fleet.calibration import calibration_of
from triton_tune.fleet.crew import Crew
from triton_tune.fleet.display import Display, Line
from triton_tune.fleet.station import Work, WorkerFacts
from triton_tune.run.fill import GO_ON, INTERRUPTED, SUMMARY_EVERY_S
from triton_tune.run.summary import lines_of, summarise
from triton_tune.search.loop import tune
from triton_tune.search.search import STRATEGIES
from tuning_table import TableError, TableWriter
from tuning_table.table import Visit
from tuning_table.visit_log import MeasuredBy, log_visits

POLL_S = 0.5
MOST_DEATHS = 3  # a worker that died so often is not used any more
ANY_MEMORY = "memory_bytes"  # in which GPUs of a model may differ


@dataclass(frozen=True)
class Prepared:
    """What is measured on one GPU model."""

    problem: SearchProblem
    configs: Mapping[str, Hashable]  # by id
    create: Callable[[], TableWriter]  # creates the table or goes on in it
    begin: Callable[[TableWriter], None] = lambda table: None  # is called before the first visit


@dataclass(frozen=True)
class FleetPlan:
    """What a fleet measures.

    prepare: from a worker's device and versions. versions: those of this process, that workers must have.
    """

    prepare: Callable[[WorkerFacts], Prepared]
    versions: Mapping[str, str]
    strategy: str
    budget: float  # seconds, of all runs of a table


@dataclass(frozen=True)
class Arrival:
    """A worker that is ready."""

    facts: WorkerFacts
    host: str
    handle: object  # of the source


class JoinableCrew(Crew, Protocol):
    """A crew to which arrivals are added from another thread."""

    def join(self, arrival: Arrival) -> None: ...


class Source(Protocol):
    """Where workers come from. Used by one thread."""

    def arrivals(self) -> Sequence[Arrival]:
        """The workers that became ready since the last call."""

    def crew(self, work: Work) -> JoinableCrew:
        """A crew without workers."""

    def waiting_for(self) -> str | None:
        """What is to be waited for, in words; None if no worker will come."""


def run_fleet(source: Source, plan: FleetPlan) -> int:
    """Measure on all workers that come, until each table's budget ends or nothing is left; print results.

    Returns 0; 2 after an error, which is printed to stderr; INTERRUPTED after Ctrl-C or SIGTERM. Rows stay.
    """
    if threading.current_thread() is threading.main_thread():  # only there may handlers be set
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # Ray's own handler ends without a summary
    with Display() as display:
        fleet = _Fleet(source, plan, display)
        interrupted = False
        try:
            fleet.work()
        except KeyboardInterrupt:
            for again in (signal.SIGINT, signal.SIGTERM):  # a second one must not lose the summary
                signal.signal(again, signal.SIG_IGN)
            interrupted = True
        finally:
            fleet.stop()
    for group in fleet.groups.values():
        for line in group.result:
            print(line)
    for error in fleet.errors:
        print(error, file=sys.stderr)
    return INTERRUPTED if interrupted else 2 if fleet.errors else 0


class _Fleet:
    """Assigns arrivals to groups, of one GPU model each."""

    def __init__(self, source: Source, plan: FleetPlan, display: Display) -> None:
        self._source, self._plan, self._display = source, plan, display
        self._stop = threading.Event()
        self.groups: dict[str, _Group] = {}
        self.errors: list[str] = []

    def work(self) -> None:
        while not self.groups or any(group.is_alive() for group in self.groups.values()):
            for arrival in self._source.arrivals():
                self._assign(arrival)
            self.errors += [g.error for g in self.groups.values() if g.error and g.error not in self.errors]
            if self.errors and self.groups:
                return
            if not self.groups:
                waiting = self._source.waiting_for()
                if waiting is None:
                    self.errors.append("no worker can be used; the lines above say why")
                    return
                self._display.waiting(waiting)
            self._display.show([group.line() for group in self.groups.values()])
            time.sleep(POLL_S)

    def stop(self) -> None:
        self._stop.set()
        for group in self.groups.values():
            group.join()
        self.errors += [g.error for g in self.groups.values() if g.error and g.error not in self.errors]

    def _assign(self, arrival: Arrival) -> None:
        facts = arrival.facts
        model = str(facts.device["name"])
        group = self.groups.get(model)
        why = _differences(facts, self._plan.versions, group.facts if group else None)
        if group is not None and group.deaths[facts.name] >= MOST_DEATHS:
            why = f"workers of this name died {MOST_DEATHS} times"
        if why is not None:
            self._display.say(f"{facts.name} is not used: {why}")
            return
        if model not in self.groups:
            try:
                prepared = self._plan.prepare(facts)
                self.groups[model] = _Group(
                    self._source, self._plan, prepared, facts, self._display, self._stop
                )
            except (TuningError, TableError) as error:
                self._display.say(f"{facts.name} is not used: {error}")
                return
            self.groups[model].start()
        self.groups[model].crew.join(arrival)


def _differences(facts: WorkerFacts, needed: Mapping[str, str], first: WorkerFacts | None) -> str | None:
    """Name the first version in which a worker differs from this process or from its group's first worker."""
    for key, need in needed.items():
        if facts.versions.get(key) != need:
            return f"its {key} is {facts.versions.get(key)}, but that of this process is {need}"
    if first is not None:
        theirs = {**first.versions, **first.device, ANY_MEMORY: 0}
        for key, have in {**facts.versions, **facts.device, ANY_MEMORY: 0}.items():
            if theirs.get(key) != have:
                return f"its {key} is {have}, but that of {first.name} is {theirs.get(key)}"
    return None


class _Group(threading.Thread):
    """The search for one table."""

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
        self._stop_event = stop
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
