"""A bench of a fleet's workers of one GPU model, which may come and go."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from triton_tune.core.bench import Advance
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit, SearchProblem
from triton_tune.fleet.calibration import EVERY_S
from triton_tune.fleet.crew import Crew, Event, Joined, Lost
from triton_tune.fleet.orders import AHEAD, MOST_LOST, Orders, Worker
from tuning_table.table import Failure, Visit
from tuning_table.visit_log import SLOW, TOO_SLOW, MeasuredBy, reference_us

WAIT_S = 0.5  # how soon a stop is noticed
CONFIRM_S = 120.0  # workers have this long to end what they do and calibrate at the end of a run
GAVE_UP = f"ended {MOST_LOST} workers"


class FleetStopped(Exception):
    """The run was stopped from another thread."""


@dataclass(frozen=True)
class Records:
    """Where a fleet's results go."""

    log: Callable[[Sequence[MeasuredBy]], None]  # lines of visits.csv
    flush: Callable[[], None]  # writes the rows that the search has recorded
    withdraw: Callable[[Sequence[Visit]], None]  # removes rows that were recorded
    say: Callable[[str], None]  # a line about a worker


@dataclass(frozen=True)
class _Unsure:
    """A visit since the worker's last calibration."""

    task: PlannedVisit
    visit: Visit
    line: MeasuredBy


@dataclass
class _Pace:
    """How fast a worker is, by its calibrations."""

    calibration_us: float | None = None
    slowdown: float | None = None
    doubted: bool = False  # the last calibration was slower than the one before, and is repeated
    resting_until: float | None = None  # it was too slow; calibrated again then
    unsure: list[_Unsure] = field(default_factory=list)


@dataclass
class FleetCounts:
    """For the display; read by another thread."""

    workers: int = 0
    resting: int = 0
    deaths: Counter[str] = field(default_factory=Counter)  # by name
    withdrawn: int = 0
    visits: int = 0
    failed_cells: int = 0


class FleetBench:
    """Measures on the workers of `crew`. Workers compile what a visit launches before they time it."""

    def __init__(
        self, crew: Crew, problem: SearchProblem, records: Records, stop: threading.Event | None = None
    ) -> None:
        self._crew, self._records = crew, records
        self._stop = stop or threading.Event()
        self._orders = Orders(problem)
        self._paces: dict[int, _Pace] = {}
        self._hungry: set[int] = set()  # workers that may hold too few orders
        self._resting: set[int] = set()  # workers that were too slow
        self._until = -math.inf
        self.counts = FleetCounts()

    def clock(self) -> float:
        return self._crew.clock()

    def compile(
        self, tasks: Sequence[PlannedVisit], until: float, advance: Advance
    ) -> tuple[PlannedVisit, ...]:
        return tuple(tasks)

    def measure(self, tasks: Sequence[PlannedVisit], until: float) -> Iterator[Visit]:
        self._until = until
        self._orders.begin(tasks)
        self._hungry = set(self._orders.workers)
        before = self.counts.visits
        while self._orders.open and (self.clock() < until or self._orders.under_way):
            self._hand_out(copies=True)
            yield from self._listen(again=True)
        if tasks and self.counts.visits == before and not self._orders.workers:
            raise TuningError("no worker was left to measure; the rows so far are kept")

    def confirm(self) -> bool:
        """Calibrate the workers once more. Returns whether rows were withdrawn, so that visits are left."""
        self._until = -math.inf
        self._orders.begin(())
        end = self.clock() + CONFIRM_S
        withdrawn = self.counts.withdrawn
        for number, worker in self._orders.workers.items():
            if self._paces[number].unsure and None not in worker.orders:
                self._hand(worker, None)
        while any(self._paces[n].unsure for n in self._orders.workers) and self.clock() < end:
            list(self._listen(again=False))  # no visit is open, so none counts
        return self.counts.withdrawn > withdrawn

    def _listen(self, *, again: bool) -> Iterator[Visit]:
        """Take what has happened, give out new orders at once, and then record what was measured.

        again: visits that are withdrawn are measured again in this round.
        """
        if self._stop.is_set():
            raise FleetStopped
        ended: list[tuple[Visit, MeasuredBy]] = []
        doubtful: list[_Unsure] = []
        for event in self._crew.wait(WAIT_S):
            ended += self._take(event, doubtful)
        self._hand_out(copies=False)
        if ended:
            self._records.log([line for _, line in ended])
            for visit, _ in ended:
                yield visit
            self._records.flush()
        if doubtful:
            self.counts.withdrawn += len(doubtful)
            self._records.withdraw([unsure.visit for unsure in doubtful])
            for unsure in doubtful if again else ():
                self._orders.put(unsure.task, first=True)

    def _hand_out(self, *, copies: bool) -> None:
        now, orders = self.clock(), self._orders
        for number in [n for n in self._resting if now >= (self._paces[n].resting_until or 0.0)]:
            if not orders.workers[number].orders:
                self._hand(orders.workers[number], None)
        if now >= self._until:
            return
        while orders.waiting and self._hungry:
            number = self._hungry.pop()
            worker = orders.workers.get(number)
            # At the end of a round, what waits is left to the worker that is free first.
            ahead = AHEAD if orders.waiting > len(orders.workers) else 1
            while worker and number not in self._resting and len(worker.orders) < ahead:
                task = orders.next_for(worker, now)
                if task is None:
                    break
                self._crew.hand(number, task)
        if copies and not orders.waiting:
            idle = [w for n, w in orders.workers.items() if not w.orders and n not in self._resting]
            for worker, task in orders.copies_for(idle, now) if idle else ():
                self._crew.hand(worker.number, task)

    def _hand(self, worker: Worker, task: PlannedVisit | None) -> None:
        self._orders.handed(worker, task, self.clock())
        self._crew.hand(worker.number, task)

    def _take(self, event: Event, doubtful: list[_Unsure]) -> Iterator[tuple[Visit, MeasuredBy]]:
        """The visits that an event adds to the table, and in `doubtful` those that it takes away."""
        workers = self._orders.workers
        if isinstance(event, Joined):
            worker = Worker(event.worker, event.name)
            self._orders.join(worker)
            self._orders.handed(worker, None, self.clock())
            self._paces[event.worker] = _Pace()
            self._hungry.add(event.worker)
        elif event.worker not in workers:
            return  # it was thought lost; its visits went to others
        elif isinstance(event, Lost):
            yield from self._lost(workers[event.worker], event.why)
        else:
            worker, outcome = workers[event.worker], event.outcome
            if self._orders.ended(worker, event.task, outcome.seconds, self.clock()):
                assert event.task is not None and outcome.visit is not None
                yield self._measured(worker, event.task, outcome.visit)
            if event.task is None or outcome.calibration_us is not None:
                doubtful += self._calibrated(worker, outcome.calibration_us)
            self._hungry.add(event.worker)
        self.counts.workers = len(workers)
        self.counts.resting = len(self._resting)

    def _measured(self, worker: Worker, task: PlannedVisit, visit: Visit) -> tuple[Visit, MeasuredBy]:
        pace = self._paces[worker.number]
        line = MeasuredBy(visit.scenario, visit.repeat, worker.name, pace.calibration_us, pace.slowdown)
        failed = sum(isinstance(cell, Failure) for cell in visit.cells.values())
        if failed < len(visit.cells):
            pace.unsure.append(_Unsure(task, visit, line))
        self.counts.visits += 1
        self.counts.failed_cells += failed
        return visit, line

    def _lost(self, worker: Worker, why: str) -> Iterator[tuple[Visit, MeasuredBy]]:
        self.counts.deaths[worker.name] += 1
        self._resting.discard(worker.number)
        self._records.say(f"{worker.name}: {why}; its visits go to other workers")
        for task in self._orders.lost(worker):
            self._records.say(f"scenario {task.scenario} {GAVE_UP} and is given up")
            cells = dict.fromkeys(task.configs, Failure(GAVE_UP))
            yield self._measured(worker, task, Visit(task.scenario, task.repeat, cells))

    def _calibrated(self, worker: Worker, microseconds: float | None) -> list[_Unsure]:
        """Compare a worker with the others. Returns its visits since the last time, if it is too slow."""
        pace = self._paces[worker.number]
        unsure, pace.unsure = pace.unsure, []
        if microseconds is None:
            return []
        before = pace.calibration_us
        if before is not None and microseconds >= SLOW * before and not pace.doubted:
            pace.doubted, pace.unsure = True, unsure  # one slow time may be chance
            self._hand(worker, None)
            return []
        pace.calibration_us, pace.doubted = microseconds, False
        paces = [self._paces[number] for number in self._orders.workers]
        known = {str(n): [p.calibration_us] for n, p in enumerate(paces) if p.calibration_us is not None}
        typical = reference_us(known)
        assert typical is not None
        pace.slowdown = microseconds / typical
        if pace.slowdown >= TOO_SLOW:
            if pace.resting_until is None:
                self._records.say(
                    f"{worker.name}: {pace.slowdown:.2f}x slower than the others; it rests, and its last "
                    f"{len(unsure)} visits are measured again"
                )
            pace.resting_until = self.clock() + EVERY_S
            self._resting.add(worker.number)
            return unsure
        if pace.resting_until is not None:
            self._records.say(f"{worker.name}: as fast as the others again")
            pace.resting_until = None
            self._resting.discard(worker.number)
        if pace.slowdown >= SLOW and unsure:
            lines = (entry.line for entry in unsure)
            now = {"calibration_us": microseconds, "slowdown": pace.slowdown}
            self._records.log([replace(line, **now) for line in lines])  # type: ignore[arg-type]
        return []
