"""Measure on the GPUs of a Ray cluster: an actor for each GPU, which may come, die and be replaced."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import signal
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from triton_tune.core.bench import Advance
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit, SearchProblem, ShapeKey
from triton_tune.fleet.worker import WorkerFacts
from tuning_table.table import Failure, Visit

CONNECT_S = 5.0
COUNT_EVERY_S = 5.0  # how often the cluster's GPUs are counted
POLL_S = 1.0
MOST_UNREADY = 3  # so many workers that end before they are ready end the run, if none is ready
MOST_DEATHS = 3  # a worker that died so often is not used any more
MOST_LOST = 3  # a visit that ended so many workers has failed
ENDED_WORKERS = Failure(f"ended {MOST_LOST} workers")
MODEL = "accelerator_type:"  # a node's resource of this kind names its GPU model
ANY_MEMORY = {"memory_bytes": 0}  # in which GPUs of a model may differ


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

    if address not in (None, "auto", "local"):
        _check_address(str(address))
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
    with contextlib.suppress(ValueError):  # only the main thread may set it
        signal.signal(signal.SIGTERM, _interrupt)  # Ray's own handler ends without a summary
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_address(address: str) -> None:
    """Raise TuningError unless something answers there: Ray itself would try for a minute."""
    match = re.fullmatch(r"([A-Za-z0-9_.-]+):(\d{1,5})", address)
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


def _interrupt(number: int, frame: object) -> None:
    """End as Ctrl-C does. A second signal must not lose the summary."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@dataclass(eq=False)
class Worker:
    """An actor that measures."""

    actor: Any
    name: str  # the host's and the GPU's
    shapes: set[ShapeKey] = field(default_factory=set)  # that it has compiled for


@dataclass
class Workers:
    """As many actors as the cluster has GPUs, or as `count` says.

    A worker must have the versions `needed`, and the device and versions of the first one. Otherwise it is
    refused, and keeps its GPU, so that Ray does not offer it again.

    kind: the class of the actors (GpuWorker), made of `arguments`, which may be references of Ray.
    num_gpus: that an actor takes, 0 or 1. accelerator: the GPU model, as Ray names it.
    """

    ray: Any
    kind: type
    arguments: Sequence[object]
    needed: Mapping[str, str]
    num_gpus: int = 1
    count: int | None = None
    accelerator: str | None = None
    usable: list[Worker] = field(default_factory=list)
    _first: WorkerFacts | None = None
    _starting: dict[Any, Any] = field(default_factory=dict)  # actors by the reference of their facts
    _refused: list[Any] = field(default_factory=list)
    _unready: list[str] = field(default_factory=list)  # why workers ended before they were ready
    _deaths: Counter[str] = field(default_factory=Counter)  # by the worker's name
    _counted: float = 0.0

    def first(self) -> WorkerFacts:
        """Wait for a worker that can be used. Raises TuningError if none will come."""
        models = {key for node in self._nodes() for key in node if key.startswith(MODEL)}
        if self.num_gpus and self.accelerator is None and len(models) > 1:
            known = ", ".join(sorted(key.removeprefix(MODEL) for key in models))
            raise TuningError(f"the GPUs are of several models: choose one with --ray-accelerator: {known}")
        self.refresh()
        if self._starting:
            print(f"waiting for {len(self._starting)} workers: Ray places them, and each starts", flush=True)
        while self._first is None:
            if len(self._unready) >= MOST_UNREADY or (self._unready and not self._starting):
                raise TuningError(f"workers end as they begin: {self._unready[-1]}")
            if self._refused and not self._starting:
                raise TuningError("no worker can be used; the lines above say why")
            if not self._starting:
                kind = f"{self.accelerator} GPU" if self.accelerator else "GPU"
                raise TuningError(f"the Ray cluster has no {kind}; --ray-workers N waits for N")
            self.ray.wait(list(self._starting), timeout=POLL_S)
            self.refresh()
        return self._first

    def refresh(self) -> None:
        """Ask for actors as hosts come, and take on those that are ready."""
        if time.monotonic() - self._counted > COUNT_EVERY_S and len(self._unready) < MOST_UNREADY:
            self._counted = time.monotonic()
            for _ in range(self._wanted() - len(self.usable) - len(self._starting) - len(self._refused)):
                actor_class = self.ray.remote(self.kind).options(
                    num_cpus=0,
                    num_gpus=self.num_gpus,
                    accelerator_type=self.accelerator,
                    max_restarts=0,  # a restarted actor might be on another GPU model
                )
                actor = actor_class.remote(*self.arguments)
                self._starting[actor.facts.remote()] = actor
        if not self._starting:
            return
        done, _ = self.ray.wait(list(self._starting), num_returns=len(self._starting), timeout=0)
        for reference in done:
            actor = self._starting.pop(reference)
            try:
                self._take_on(actor, self.ray.get(reference))
            except Exception as error:
                self._unready.append(_cause(error))

    def lost(self, worker: Worker, error: Exception) -> None:
        """Give up a worker that died, was preempted or cannot be reached."""
        self.usable.remove(worker)
        self._deaths[worker.name] += 1
        with contextlib.suppress(Exception):
            self.ray.kill(worker.actor)
        print(f"{worker.name}: {_cause(error)}; its visit goes to another worker", flush=True)

    def _wanted(self) -> int:
        if self.count is not None:
            return self.count
        model = None if self.accelerator is None else f"{MODEL}{self.accelerator}"
        return int(sum(node.get("GPU", 0) for node in self._nodes() if model is None or model in node))

    def _nodes(self) -> list[dict[str, float]]:
        """The resources of the cluster's nodes."""
        return [node["Resources"] for node in self.ray.nodes() if node["Alive"]]

    def _take_on(self, actor: Any, facts: WorkerFacts) -> None:
        why = _difference(facts, self.needed, self._first)
        if self._deaths[facts.name] >= MOST_DEATHS:
            why = f"workers of this name died {MOST_DEATHS} times"
        if why is not None:
            self._refused.append(actor)
            print(f"{facts.name} is not used: {why}", flush=True)
            return
        self._first = self._first or facts
        self.usable.append(Worker(actor, facts.name))


def _difference(facts: WorkerFacts, needed: Mapping[str, str], first: WorkerFacts | None) -> str | None:
    """Name the first version in which a worker differs from this process or from the run's first worker."""
    for key, need in needed.items():
        if facts.versions.get(key) != need:
            return f"its {key} is {facts.versions.get(key)}, but that of this process is {need}"
    if first is not None:
        theirs = {**first.versions, **first.device, **ANY_MEMORY}
        for key, have in {**facts.versions, **facts.device, **ANY_MEMORY}.items():
            if theirs.get(key) != have:
                return f"its {key} is {have}, but that of {first.name} is {theirs.get(key)}"
    return None


class RayBench:
    """Measures visits on `workers`, each of which has one visit at a time and compiles what it launches.

    A visit whose worker is lost goes to another one, up to MOST_LOST times.

    configs: by id. log: is called with who measured a visit, before the visit is returned.
    """

    def __init__(
        self,
        workers: Workers,
        problem: SearchProblem,
        configs: Mapping[str, Hashable],
        log: Callable[[Mapping[tuple[str, int], str]], None],
    ) -> None:
        self._workers, self._problem, self._configs, self._log = workers, problem, configs, log

    def clock(self) -> float:
        return time.monotonic()

    def compile(
        self, tasks: Sequence[PlannedVisit], until: float, advance: Advance
    ) -> tuple[PlannedVisit, ...]:
        return tuple(tasks)

    def measure(self, tasks: Sequence[PlannedVisit], until: float) -> Iterator[Visit]:
        ray, workers = self._workers.ray, self._workers
        waiting: dict[ShapeKey, deque[PlannedVisit]] = {}
        for task in tasks:
            waiting.setdefault(self._problem.shape(task.scenario), deque()).append(task)
        lost: Counter[PlannedVisit] = Counter()
        busy: dict[Any, tuple[Worker, PlannedVisit]] = {}
        measured = 0
        while busy or (waiting and self.clock() < until):
            workers.refresh()
            holding = {worker for worker, _ in busy.values()}
            for worker in [w for w in workers.usable if w not in holding and self.clock() < until]:
                if waiting:
                    task = self._next_for(worker, waiting)
                    configs = {config: self._configs[config] for config in task.configs}
                    busy[worker.actor.visit.remote(task, configs)] = (worker, task)
            if not busy:
                time.sleep(POLL_S)
                continue
            done, _ = ray.wait(list(busy), timeout=POLL_S)
            for reference in done:
                worker, task = busy.pop(reference)
                try:
                    visit = ray.get(reference)
                    measured += 1
                except Exception as error:
                    workers.lost(worker, error)
                    lost[task] += 1
                    if lost[task] < MOST_LOST:
                        waiting.setdefault(self._problem.shape(task.scenario), deque()).appendleft(task)
                        continue
                    print(f"scenario {task.scenario} {ENDED_WORKERS.reason} and is given up", flush=True)
                    visit = Visit(task.scenario, task.repeat, dict.fromkeys(task.configs, ENDED_WORKERS))
                self._log({(visit.scenario, visit.repeat): worker.name})
                yield visit
        if tasks and not measured and not workers.usable:
            raise TuningError("no worker was left to measure; the rows so far are kept")

    def _next_for(self, worker: Worker, waiting: dict[ShapeKey, deque[PlannedVisit]]) -> PlannedVisit:
        """Take a visit of a shape for which the worker, else its host, else no worker has compiled."""
        others = self._workers.usable
        host = worker.name.partition("/")[0] + "/"
        there = set().union(*(other.shapes for other in others if other.name.startswith(host)))
        knowing = Counter(shape for other in others for shape in other.shapes)

        def rank(shape: ShapeKey) -> tuple[bool, bool, float]:
            return shape not in worker.shapes, shape not in there, -len(waiting[shape]) / (1 + knowing[shape])

        shape = min(waiting, key=rank)
        task = waiting[shape].popleft()
        if not waiting[shape]:
            del waiting[shape]
        worker.shapes.add(shape)
        return task


def _cause(error: BaseException) -> str:
    """One line of what ended a worker, from Ray's long messages."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, BaseException):
        return f"{type(cause).__name__}: {_one_line(cause)}"
    lines = [line for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines() if line.strip()]
    if getattr(error, "actor_init_failed", False):  # the message ends with the error of the constructor
        return _one_line(lines[-1])
    told = [line for line in lines if not line.startswith("\t")]  # the others tell the actor's numbers
    return f"{type(error).__name__}: {_one_line(' '.join(told)).partition(' Some common causes')[0]}"


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]
