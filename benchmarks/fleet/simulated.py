"""A crew without processes: workers of many speeds, which come late, die or are cut off, by its own clock."""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from triton_tune.core.problem import PlannedVisit, SearchProblem, Times
from triton_tune.fleet.crew import Ended, Event, Joined, Lost
from triton_tune.fleet.replay import CALIBRATION_US, compile_seconds, replayed
from triton_tune.fleet.shards import estimated_s
from triton_tune.fleet.station import Outcome

CALIBRATE_S = 0.3  # what a calibration takes
CALIBRATE_EVERY_S = 30.0
NOTICED_S = 5.0  # after a death


@dataclass(frozen=True)
class SimulatedWorker:
    """A worker of the simulation. Times are seconds of the virtual clock."""

    name: str
    speed: float = 1.0
    joins: float = 0.0
    dies: float = math.inf
    cut_off: tuple[float, float] = (math.inf, math.inf)  # what ends in between arrives at its end
    slow: tuple[float, float, float] = (math.inf, math.inf, 1.0)  # from, until, how much slower

    def slowdown(self, now: float) -> float:
        begin, end, factor = self.slow
        return factor if begin <= now < end else 1.0


@dataclass(frozen=True)
class Span:
    """When a worker measured a visit."""

    worker: int
    begin: float
    end: float


@dataclass
class _State:
    worker: SimulatedWorker
    orders: deque[PlannedVisit | None] = field(default_factory=deque)
    busy: bool = False
    alive: bool = False
    calibrated: float = -math.inf


class SimulatedCrew:
    """Replays recorded cells on simulated workers.

    compiling: visits take the time to compile what their host has not compiled. order_s: what handing out an
    order takes. With it, the processor time of this process passes on the virtual clock, too.
    """

    def __init__(
        self,
        problem: SearchProblem,
        times: Times,
        workers: Sequence[SimulatedWorker],
        *,
        compiling: bool = False,
        order_s: float = 0.0,
    ) -> None:
        self._problem, self._times = problem, times
        self._compiling, self._order_s = compiling, order_s
        self._states = [_State(worker) for worker in workers]
        self._compiled: dict[str, set[object]] = {}
        self._order = count()
        self._heap: list[tuple[float, int, int, object]] = []
        self._now = 0.0
        self._cpu = time.process_time()
        self.spans: list[Span] = []  # the visits that ended, without those that ended elsewhere before
        self._done: set[PlannedVisit] = set()
        for number, worker in enumerate(workers):
            self._at(worker.joins, number, "join")
            if worker.dies < math.inf:
                self._at(worker.dies, number, "die")
            if worker.cut_off[0] < math.inf:
                self._at(worker.cut_off[0] + NOTICED_S, number, "lost")

    def clock(self) -> float:
        return self._now

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, as this process waited for so long."""
        self._now += seconds

    def hand(self, worker: int, task: PlannedVisit | None) -> None:
        self._now += self._order_s
        state = self._states[worker]
        state.orders.append(task)
        if not state.busy:
            self._begin(worker, self._now)

    def wait(self, seconds: float) -> Sequence[Event]:
        if self._order_s:
            self._now += time.process_time() - self._cpu
        if self._heap and self._heap[0][0] > self._now:
            self._now = min(self._heap[0][0], self._now + seconds)
        elif not self._heap:
            self._now += seconds
        events: list[Event] = []
        while self._heap and self._heap[0][0] <= self._now:
            at, _, number, what = heapq.heappop(self._heap)
            events += self._happen(at, number, what)
        self._cpu = time.process_time()
        return events

    def _at(self, when: float, number: int, what: object) -> None:
        heapq.heappush(self._heap, (when, next(self._order), number, what))

    def _begin(self, number: int, now: float) -> None:
        state = self._states[number]
        state.busy = bool(state.orders) and state.alive
        if not state.busy:
            return
        task = state.orders.popleft()
        worker, seconds = state.worker, 0.0
        if task is not None:
            seconds = estimated_s(len(task.configs))
            if self._compiling:
                host = self._compiled.setdefault(worker.name.partition("/")[0], set())
                seconds += compile_seconds(self._problem, host, task)
            seconds /= worker.speed / worker.slowdown(now)
        end = now + seconds
        calibration = None
        if task is None or end - state.calibrated > CALIBRATE_EVERY_S:
            end += CALIBRATE_S
            calibration = CALIBRATION_US * worker.slowdown(end)
            state.calibrated = end
        outcome = Outcome(None if task is None else replayed(self._times, task), seconds, calibration)
        self._at(end, number, Ended(number, task, outcome))

    def _happen(self, at: float, number: int, what: object) -> Sequence[Event]:
        state = self._states[number]
        worker = state.worker
        if what == "join":
            state.alive = True
            state.orders.append(None)
            self._begin(number, at)
            return [Joined(number, worker.name)]
        if what == "die":
            state.alive = False
            self._at(at + NOTICED_S, number, "lost")
            return []
        if what == "lost":
            return [Lost(number, "was preempted")]
        assert isinstance(what, Ended)
        if not state.alive:
            return []
        if worker.cut_off[0] <= at < worker.cut_off[1]:
            self._at(worker.cut_off[1], number, what)
            return []
        if what.task is not None and what.task not in self._done:
            self._done.add(what.task)
            self.spans.append(Span(number, at - what.outcome.seconds, at))
        self._begin(number, at)
        return [what]
