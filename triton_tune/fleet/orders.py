"""Which worker of a fleet gets which visit: no state but the current round's."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from triton_tune.core.problem import PlannedVisit, SearchProblem, ShapeKey
from triton_tune.fleet.shards import estimated_s
from triton_tune.run.replay import COMPILE_S

AHEAD = 2  # a worker holds so many orders, so that it need not wait for the next
MOST_LOST = 3  # a visit that ended so many workers is given up
COPIES = 2  # so many workers may hold the same visit at the end of a round


@dataclass
class Worker:
    """A worker as orders see it."""

    number: int
    name: str  # the host's and the GPU's
    orders: deque[PlannedVisit | None] = field(default_factory=deque)
    free_since: float = 0.0  # when the order under way could begin
    rate: float | None = None  # seconds for an estimated second; None: not known
    shapes: set[ShapeKey] = field(default_factory=set)  # that it has compiled for

    @property
    def host(self) -> str:
        return self.name.partition("/")[0]


class Orders:
    """The visits of a round that are waiting or under way.

    A free worker gets a visit of a shape that it, or its host, has compiled for; otherwise one of the shape
    with the most work for each worker that knows it. When nothing is waiting, it gets a copy of the visit
    under way that would end last, if it can end it sooner. Of two copies, the first to end counts.
    """

    def __init__(self, problem: SearchProblem) -> None:
        self._problem = problem
        self.workers: dict[int, Worker] = {}
        self._waiting: dict[ShapeKey, deque[PlannedVisit]] = {}
        self._num_waiting = 0
        self._put_back: set[PlannedVisit] = set()
        self._open: set[PlannedVisit] = set()  # waiting or under way
        self._holders: Counter[PlannedVisit] = Counter()
        self._lost: Counter[PlannedVisit] = Counter()
        self._knowing: Counter[ShapeKey] = Counter()  # workers that compiled for a shape
        self._hosts: dict[str, set[ShapeKey]] = {}  # shapes that a host compiled for

    @property
    def open(self) -> int:
        """The number of visits that have not ended."""
        return len(self._open)

    @property
    def waiting(self) -> int:
        """The number of visits that no worker was handed."""
        return self._num_waiting

    @property
    def under_way(self) -> bool:
        return any(task in self._open for worker in self.workers.values() for task in worker.orders)

    def begin(self, tasks: Iterable[PlannedVisit]) -> None:
        """Begin a round. What is left of the last one no longer counts."""
        self._waiting, self._lost, self._num_waiting = {}, Counter(), 0
        self._open, self._put_back = set(), set()
        self._holders = Counter(task for w in self.workers.values() for task in w.orders if task)
        for task in tasks:
            self.put(task)

    def put(self, task: PlannedVisit, *, first: bool = False) -> None:
        """Add a visit to those that wait."""
        self._open.add(task)
        self._num_waiting += 1
        queue = self._waiting.setdefault(self._problem.shape(task.scenario), deque())
        if first:
            self._put_back.add(task)
            queue.appendleft(task)
        else:
            queue.append(task)

    def join(self, worker: Worker) -> None:
        self.workers[worker.number] = worker

    def next_for(self, worker: Worker, now: float) -> PlannedVisit | None:
        """Hand a worker a visit that waits; None if none does."""
        shapes = [shape for shape, queue in self._waiting.items() if queue]
        if not shapes:
            return None
        shape = min(shapes, key=lambda shape: self._rank(worker, shape))
        task = self._waiting[shape].popleft()
        self._num_waiting -= 1
        self.handed(worker, task, now)
        return task

    def copies_for(self, idle: Sequence[Worker], now: float) -> list[tuple[Worker, PlannedVisit]]:
        """Hand idle workers copies of the visits under way that would end last, if they end them sooner."""
        typical = self._typical_rate()
        ends = sorted(self._ends(now, typical), key=lambda pair: pair[0])
        handed = []
        for worker in sorted(idle, key=lambda worker: worker.rate or typical):
            if ends and now + self._expected(worker, ends[-1][1], typical) < ends[-1][0]:
                _, task = ends.pop()
                self.handed(worker, task, now)
                handed.append((worker, task))
        return handed

    def handed(self, worker: Worker, task: PlannedVisit | None, now: float) -> None:
        if not worker.orders:
            worker.free_since = now
        worker.orders.append(task)
        if task is not None:
            self._holders[task] += 1
            shape = self._problem.shape(task.scenario)
            if shape not in worker.shapes:
                worker.shapes.add(shape)
                self._knowing[shape] += 1
                self._hosts.setdefault(worker.host, set()).add(shape)

    def ended(self, worker: Worker, task: PlannedVisit | None, seconds: float, now: float) -> bool:
        """Take note that a worker ended an order. Returns whether the visit counts."""
        if task in worker.orders:
            worker.orders.remove(task)
        worker.free_since = now
        if task is None:
            return False
        self._holders[task] -= 1
        rate = seconds / estimated_s(len(task.configs))
        worker.rate = rate if worker.rate is None else 0.7 * worker.rate + 0.3 * rate
        counts = task in self._open
        self._close(task)
        return counts

    def lost(self, worker: Worker) -> list[PlannedVisit]:
        """Forget a worker; its visits wait again. Returns the visits that are given up."""
        del self.workers[worker.number]
        self._knowing.subtract(worker.shapes)
        given_up = []
        for position, task in enumerate(worker.orders):
            if task is None:
                continue
            self._holders[task] -= 1
            self._lost[task] += position == 0  # the others were not under way
            if task not in self._open or self._holders[task]:
                continue
            if self._lost[task] >= MOST_LOST:
                self._close(task)
                given_up.append(task)
            else:
                self.put(task, first=True)
        return given_up

    def _close(self, task: PlannedVisit) -> None:
        self._open.discard(task)
        if task in self._put_back:  # while it waited again, a copy of it ended
            self._put_back.remove(task)
            queue = self._waiting[self._problem.shape(task.scenario)]
            if task in queue:
                queue.remove(task)
                self._num_waiting -= 1

    def _rank(self, worker: Worker, shape: ShapeKey) -> tuple[bool, bool, float]:
        known_here = shape in self._hosts.get(worker.host, ())
        share = len(self._waiting[shape]) / (1 + self._knowing[shape])
        return shape not in worker.shapes, not known_here, -share

    def _ends(self, now: float, typical: float) -> Iterator[tuple[float, PlannedVisit]]:
        """When each visit that one worker holds would end."""
        for worker in self.workers.values():
            end = worker.free_since
            for task in worker.orders:
                if task is not None:
                    end += self._expected(worker, task, typical)
                    if end < now:  # it is late already, so it may take as long again
                        end = now + (now - worker.free_since)
                    if task in self._open and self._holders[task] < COPIES:
                        yield end, task

    def _typical_rate(self) -> float:
        rates = [worker.rate for worker in self.workers.values() if worker.rate is not None]
        return median(rates) if rates else 1.0

    def _expected(self, worker: Worker, task: PlannedVisit, typical: float) -> float:
        """Estimate the seconds that a visit takes a worker."""
        compiling = 0.0
        if self._problem.shape(task.scenario) not in worker.shapes:
            compiling = COMPILE_S * len(task.configs)
        rate = typical if worker.rate is None else worker.rate
        return compiling + rate * estimated_s(len(task.configs))
