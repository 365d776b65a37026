"""One search of many kernels, and the loop of a run: a bench measures its rounds until the budget ends."""

import math
from collections.abc import Callable, Mapping
from dataclasses import InitVar, dataclass
from typing import Protocol

from triton_tune.core.errors import TuningError
from triton_tune.core.problem import Bench, PlannedVisit, Round, SearchProblem, Strategy, Times
from triton_tune.search.race import STRATEGIES, Race
from tuning_table.table import Visit

COMPILE_SHARE = 0.6  # compiling gets at most this share of a round's time; the rest is for measuring
FEWEST_VISITS = 4  # this many visits are made of what was compiled, even if compiling took all of the time
CELLS_PER_ROUND = 256  # or fewer, if the budget would end earlier at this run's pace


@dataclass
class Together:
    """Follows a strategy for each kernel. That of a single kernel is followed as it is.

    ended: the kernels that need no further visit, or have none that works (`gave_up`: why).
    """

    problems: Mapping[str, SearchProblem]  # by kernel, heaviest first; no two have scenarios with one name
    weights: Mapping[str, float]  # shares of the launches' time
    strategy: str
    times: InitVar[Times]  # of earlier runs
    spent: float  # the used share of the budget then

    def __post_init__(self, times: Times) -> None:
        rules = STRATEGIES[self.strategy]
        self._searches = {name: Race(problem, rules) for name, problem in self.problems.items()}
        self._cells = times.num_measured()
        begun = (name for name in self._searches if self._measured(name, times))
        self.ended = {name for name in begun if self._searches[name].next_round(times, self.spent) is None}

    @property
    def gave_up(self) -> dict[str, str]:
        return {name: search.gave_up for name, search in self._searches.items() if search.gave_up}

    @property
    def finished(self) -> frozenset[str]:
        """The kernels that need no further visit."""
        return frozenset(self.ended.difference(self.gave_up))

    def next_round(self, times: Times, spent: float) -> Round | None:
        tasks: list[PlannedVisit] = []
        cells, kernels, most = 0, 0, self._affordable(times, spent)
        had = {name: self._measured(name, times) for name in self._searches}
        # Those that had least for their weight come first, and of those without any the heaviest.
        for name in sorted(had, key=lambda name: had[name] / max(self.weights[name], 1e-6)):
            begun = had[name] > 0
            if name in self.ended or (begun and cells >= most):
                continue
            planned = self._searches[name].next_round(times, spent)
            if planned is None:
                self.ended.add(name)
            elif len(self._searches) == 1:
                return planned
            else:
                kernels += 1
                for task in planned.tasks:
                    if not begun or cells < most:
                        tasks.append(task)
                        cells += len(task.configs)
        return Round(f"{kernels} kernels", tuple(tasks)) if tasks else None

    def _measured(self, name: str, times: Times) -> int:
        return sum(len(times.measured(scenario)) for scenario in self.problems[name].scenarios)

    def _affordable(self, times: Times, spent: float) -> float:
        """How many cells the rest of the budget suffices for, as a round is compiled as a whole."""
        cells = times.num_measured() - self._cells
        if not cells:
            return CELLS_PER_ROUND
        return min(CELLS_PER_ROUND, cells * (1 - spent) / max(spent - self.spent, 1e-9))


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
            why = "as none of its kernels could be compiled"
            raise TuningError(f"round {planned.name!r} measured nothing, {why}")
    return False
