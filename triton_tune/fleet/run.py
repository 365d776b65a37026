"""A run on a fleet: workers that come are given to the group of their GPU model."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Mapping

from triton_tune.core.errors import TuningError
from triton_tune.fleet.display import Display
from triton_tune.fleet.group import Group
from triton_tune.fleet.plan import Arrival, FleetPlan, Source
from triton_tune.fleet.station import WorkerFacts
from triton_tune.run.fill import INTERRUPTED
from tuning_table import TableError

POLL_S = 0.5
MOST_DEATHS = 3  # a worker that died so often is not used any more
ANY_MEMORY = "memory_bytes"  # in which GPUs of a model may differ


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
        self.groups: dict[str, Group] = {}
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
                self.groups[model] = Group(
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
