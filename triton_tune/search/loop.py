"""The loop of a tuning run: a bench measures a strategy's rounds until the budget ends."""

import math
from collections.abc import Callable
from typing import Protocol

from triton_tune.core.errors import TuningError
from triton_tune.core.problem import Bench, Strategy, Times
from tuning_table.table import Visit

COMPILE_SHARE = 0.6  # compiling gets at most this share of a round's time; the rest is for measuring
FEWEST_VISITS = 4  # this many visits are made of what was compiled, even if compiling took all of the time


class Watcher(Protocol):
    def begin(self, what: str, total: int) -> None: ...
    def advance(self, done: int) -> None: ...


def tune(
    strategy: Strategy,
    bench: Bench,
    times: Times,
    record: Callable[[Visit], None],
    watcher: Watcher,
    *,
    budget: float,
    spent: float = 0.0,
) -> bool:
    """Measure until `budget` seconds are over, and add to `times`. Returns whether no visit is left.

    record: is called with every visit as it ends. spent: seconds of the budget that earlier runs used.
    Visits that have begun are finished. Raises TuningError if a round measures nothing although it had time.
    """
    start = bench.clock() - spent
    over = 0.0  # rounds that had to end by this share of the budget have no time left
    while (used := bench.clock() - start) < budget:
        planned = strategy.next_round(times, max(over, used / budget))
        if planned is None:
            return True
        deadline = start + planned.share * budget
        before = bench.clock()
        compiled_by = before + COMPILE_SHARE * (deadline - before)
        watcher.begin(f"compile for {planned.name}", 0)

        def compiled(done: int, total: int, name: str = planned.name) -> None:
            if done == 1:
                watcher.begin(f"compile for {name}", total)
            watcher.advance(done)

        tasks = bench.compile(planned.tasks, compiled_by, compiled)
        in_time = bench.clock() < compiled_by
        watcher.begin(planned.name, len(tasks))
        done = 0
        until = deadline
        if bench.clock() >= deadline:  # a short run would end with an empty table
            tasks, until = tasks[: max(0, FEWEST_VISITS - times.num_visits)], math.inf
        for done, visit in enumerate(bench.measure(tasks, until), start=1):
            record(visit)
            times.add(visit)
            watcher.advance(done)
        if not done and planned.share < 1.0:
            over = max(over, planned.share)
        elif not done and in_time:  # otherwise compiling took the time
            raise TuningError(
                f"round {planned.name!r} measured nothing, as none of its kernels could be compiled"
            )
    return False
