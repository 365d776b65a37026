"""Workers on a Ray cluster: one actor for each GPU."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import queue
import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from triton_tune.bench.pool import Subject
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit
from triton_tune.fleet.crew import Ended, Event, Joined, Lost
from triton_tune.fleet.plan import Arrival
from triton_tune.fleet.station import GpuStation, Station, Work, WorkerFacts
from triton_tune.processes.compile_ahead import default_workers

COUNT_EVERY_S = 5.0  # how often the cluster's GPUs are counted
CONNECT_S = 5.0
MOST_UNREADY = 3  # so many workers that end before they are ready end the run, if none is ready


def gpu_source(
    ray: Any,
    subject: Subject,
    source_hash: Callable[[], str],
    *,
    compile_workers: int | None = None,
    count: int | None = None,
    interpreter: bool = False,
) -> RaySource:
    """Workers that measure `subject`, each on a GPU of its own, or in Triton's interpreter."""
    arguments = (ray.put(subject), source_hash, compile_workers, interpreter)
    if interpreter:
        return RaySource(ray, _gpu_station, arguments, {"num_cpus": 1}, "CPU", count or 1)
    return RaySource(ray, _gpu_station, arguments, {"num_cpus": 0, "num_gpus": 1}, "GPU", count)


def _gpu_station(
    subject: Subject, source_hash: Callable[[], str], compile_workers: int | None, interpreter: bool
) -> GpuStation:
    """The station of an actor, which sees one GPU. The GPUs of a host share its processors."""
    import ray

    if compile_workers is None:
        node = ray.get_runtime_context().get_node_id()
        gpus = next(n["Resources"].get("GPU", 1) for n in ray.nodes() if n["NodeID"] == node)
        compile_workers = default_workers(sharing=max(1, int(gpus)))
    device = torch.device("cpu") if interpreter else torch.device("cuda", 0)
    return GpuStation(subject, source_hash, device, compile_workers)


class StationActor:
    """A worker: a station in a process of its own."""

    def __init__(self, make: Callable[..., Station], *arguments: object) -> None:
        self._station = make(*arguments)

    def facts(self) -> WorkerFacts:
        return self._station.facts

    def prepare(self, work: Work) -> object:
        return self._station.prepare(work)

    def visit(self, task: PlannedVisit | None) -> object:
        return self._station.visit(task)


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """The module ray, connected.

    address: `host:port` of a cluster's head. None: the cluster that RAY_ADDRESS names or that runs on this
    host, and otherwise a new one on this host.

    Raises TuningError without Ray, or if there is no cluster at the address.
    """
    if importlib.util.find_spec("ray") is None:
        raise TuningError("--ray needs Ray: pip install 'attn-kernels[fleet]'")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # its warning about GPUs
    import ray

    if address is not None:
        _check_address(address)
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=None if address else False,
            configure_logging=False,
        )
    except Exception as error:  # Ray raises Exception itself, too
        raise TuningError(f"--ray {address or ''}: {_one_line(error)}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raise TuningError unless something answers there: Ray itself would try for a minute."""
    match = re.fullmatch(r"([A-Za-z0-9_.-]+):(\d{1,5})", address)
    if address in ("auto", "local"):
        return
    if match is None:
        raise TuningError(
            f"--ray {address!r:.80}: write host:port of the cluster's head, such as 10.0.0.1:6379, and run "
            "this command on a host of the cluster"
        )
    try:
        socket.create_connection((match[1], int(match[2])), CONNECT_S).close()
    except (OSError, OverflowError) as error:
        what = getattr(error, "strerror", None) or str(error)
        raise TuningError(f"--ray {address}: no Ray cluster answers there: {what}") from None


@dataclass
class _Handle:
    """An actor, and what it was asked for."""

    actor: Any
    ready: Any  # the reference of its facts; None once it has told them
    dead: bool = False  # set by its crew, in another thread


@dataclass
class RaySource:
    """Asks Ray for as many actors as the cluster has of `resource`, or for `count`.

    make: makes an actor's station of `arguments`, which may be references of Ray. options: of each actor.
    resource: what an actor takes one of.
    """

    ray: Any
    make: Callable[..., Station]
    arguments: Sequence[object]
    options: dict[str, Any]
    resource: str = "GPU"
    count: int | None = None
    _handles: list[_Handle] = field(default_factory=list)
    _counted: float = 0.0
    _unready: list[str] = field(default_factory=list)  # why workers ended before they were ready

    def arrivals(self) -> Sequence[Arrival]:
        """The workers that became ready since the last call; asks for more actors as hosts come."""
        if time.monotonic() - self._counted > COUNT_EVERY_S:
            self._counted = time.monotonic()
            self._ask()
        pending = {handle.ready: handle for handle in self._handles if handle.ready is not None}
        if not pending:
            return []
        done, _ = self.ray.wait(list(pending), num_returns=len(pending), timeout=0)
        found = []
        for reference in done:
            handle = pending[reference]
            handle.ready = None
            try:
                facts = self.ray.get(reference)
            except Exception as error:
                self._handles.remove(handle)
                self._unready.append(_cause(error))
                continue
            found.append(Arrival(facts, handle))
        return found

    def crew(self, work: Work) -> RayCrew:
        return RayCrew(self.ray, self.ray.put(work))

    def waiting_for(self) -> str | None:
        """What the run waits for; None once workers end as they begin, or all were refused."""
        pending = [handle for handle in self._handles if handle.ready is not None]
        if len(self._unready) >= MOST_UNREADY or (self._unready and not pending):
            raise TuningError(f"workers end as they begin: {self._unready[-1]}")
        if not pending and self._handles:
            return None
        if not pending and not self._wanted():
            raise TuningError(f"the Ray cluster has no {self.resource}; --ray-workers N waits for N")
        return f"waiting for {len(pending)} workers: Ray places them, and each starts"

    def _wanted(self) -> int:
        if self.count is not None:
            return self.count
        return int(self.ray.cluster_resources().get(self.resource, 0))

    def _ask(self) -> None:
        self._handles = [handle for handle in self._handles if not handle.dead]
        if len(self._unready) >= MOST_UNREADY:
            return
        for _ in range(self._wanted() - len(self._handles)):
            actor_class = self.ray.remote(StationActor).options(max_restarts=0, **self.options)
            actor = actor_class.remote(self.make, *self.arguments)
            self._handles.append(_Handle(actor, actor.facts.remote()))


class RayCrew:
    """The actors of one GPU model."""

    def __init__(self, ray: Any, work: Any) -> None:
        self._ray, self._work = ray, work
        self._joining: queue.Queue[Arrival] = queue.Queue()
        self._handles: dict[int, _Handle] = {}
        self._orders: dict[Any, tuple[int, PlannedVisit | None]] = {}  # by reference
        self._next = 0

    def clock(self) -> float:
        return time.monotonic()

    def join(self, arrival: Arrival) -> None:
        """Add a worker; called by another thread."""
        self._joining.put(arrival)

    def hand(self, worker: int, task: PlannedVisit | None) -> None:
        self._orders[self._handles[worker].actor.visit.remote(task)] = (worker, task)

    def wait(self, seconds: float) -> Sequence[Event]:
        events: list[Event] = []
        with contextlib.suppress(queue.Empty):
            while True:
                events.append(self._take_on(self._joining.get(timeout=0 if self._orders else seconds)))
        references = list(self._orders)
        if not references:
            return events
        done, _ = self._ray.wait(references, num_returns=1, timeout=0 if events else seconds)
        if done:  # and all others that are ready
            done, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        for reference in done:
            if reference in self._orders:  # otherwise its worker is lost
                events.append(self._ended(reference))
        return events

    def _take_on(self, arrival: Arrival) -> Joined:
        worker, self._next = self._next, self._next + 1
        assert isinstance(arrival.handle, _Handle)
        self._handles[worker] = arrival.handle
        self._orders[arrival.handle.actor.prepare.remote(self._work)] = (worker, None)
        return Joined(worker, arrival.facts.name)

    def _ended(self, reference: Any) -> Event:
        worker, task = self._orders.pop(reference)
        try:
            return Ended(worker, task, self._ray.get(reference))
        except Exception as error:
            handle = self._handles.pop(worker)
            for other in [r for r, (number, _) in self._orders.items() if number == worker]:
                del self._orders[other]
            with contextlib.suppress(Exception):
                self._ray.kill(handle.actor)
            handle.dead = True
            return Lost(worker, _cause(error))


def _cause(error: BaseException) -> str:
    """One line of what ended a worker, from Ray's long messages."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return f"{type(cause).__name__}: {_one_line(cause)}"
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines() if line.strip()]
    if getattr(error, "actor_init_failed", False):  # the message ends with the error of the constructor
        return _one_line(lines[-1])
    told = [
        line for line in lines if re.search(r"exit|died|killed|dead|lost|unreachable|preempt|memory", line)
    ]
    told = [line for line in told if not line.startswith(("class_name", "actor_id", "The actor died unexp"))]
    line = (told or lines or [""])[-1].partition(" Some common causes include")[0]
    return f"{type(error).__name__}: {_one_line(line).rstrip('.')}"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]
