"""The loop of a tuning run: a strategy's rounds on a bench, until nothing is left or the time is over."""

from collections.abc import Callable
from typing import Protocol

from attn_kernels.tuning.bench.bench import Bench
from attn_kernels.tuning.errors import TuningError
from attn_kernels.tuning.problem import Times
from attn_kernels.tuning.search.search import Strategy
from tuning_table.table import Visit

COMPILE_SHARE = 0.6  # of a round's time, at most: what is compiled is to be measured as well


class Watcher(Protocol):
    """Is told how the run goes."""

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
    """Go on from `times` until `budget` seconds, `spent` of them already, are over; whether nothing is left.

    Every visit is recorded as it ends. Visits under way at the end are waited for. Raises TuningError if a
    round measures nothing though there was time for it.
    """
    start = bench.clock() - spent
    over = 0.0  # the share by when a round had to end whose time did not suffice
    while (used := bench.clock() - start) < budget:
        planned = strategy.next_round(times, max(over, used / budget))
        if planned is None:
            return True
        deadline = start + planned.share * budget
        before = bench.clock()
        compiled_by = before + COMPILE_SHARE * (deadline - before)
        watcher.begin(f"compiling for: {planned.name}", 0)

        def compiled(done: int, total: int, name: str = planned.name) -> None:
            if done == 1:
                watcher.begin(f"compiling for: {name}", total)
            watcher.advance(done)

        tasks = bench.compile(planned.tasks, compiled_by, compiled)
        in_time = bench.clock() < compiled_by
        watcher.begin(planned.name, len(tasks))
        done = 0
        for done, visit in enumerate(bench.measure(tasks, deadline), start=1):
            record(visit)
            times.add(visit)
            watcher.advance(done)
        if not done and planned.share < 1.0:
            over = max(over, planned.share)
        elif not done and in_time:  # else what was begun is soon compiled, or the budget is over
            raise TuningError(f"round {planned.name!r} measured nothing: nothing of it could be compiled")
    return False
