"""One search of many kernels: who gets how much, and when a kernel is finished."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from tuning_builders import Advance, Silent, SurfaceBench, surface

from triton_tune.core.problem import PlannedVisit, Times
from triton_tune.search.loop import tune
from triton_tune.search.together import BETWEEN, Together
from tuning_table.table import Visit

THERE = surface(scenarios=100)
WEIGHTS = {"rare": 0.02, "seldom": 0.08, "often": 0.3, "mostly": 0.6}


def together(times: dict[str, Times]) -> Together:
    return Together(dict.fromkeys(WEIGHTS, THERE.problem), WEIGHTS, times, "race", 0.0)


def rounds(search: Together, most: int) -> int:
    """Measure so many rounds at most; returns how many there were."""
    for number in range(most):
        planned = search.next_round(Times(), 0.5)
        if planned is None:
            return number
        for task in planned.tasks:
            name, _, scenario = task.scenario.partition(BETWEEN)
            visit = THERE.visit(replace(task, scenario=scenario))
            assert search.add(replace(visit, scenario=task.scenario)) == (name, visit)
    return most


def test_every_kernel_is_begun_at_once_those_that_matter_go_on_first_and_all_are_finished() -> None:
    times = {name: Times() for name in WEIGHTS}
    search = together(times)
    rounds(search, 1)
    assert all(found.num_visits for found in times.values()) and not search.finished
    while "mostly" not in search.finished:
        assert rounds(search, 1) == 1
    assert times["rare"].num_measured() < times["mostly"].num_measured() / 2
    assert rounds(search, 1000) < 1000
    assert search.finished == set(WEIGHTS) and not search.gave_up
    later = together(times)  # of a later run, which has the tables
    assert later.finished == set(WEIGHTS) and later.next_round(Times(), 0.0) is None


class SlowBench(SurfaceBench):
    """Compiles all of a round, 0.1 s a cell, before it measures any, 0.05 s a cell."""

    def compile(
        self, tasks: Sequence[PlannedVisit], until: float, progress: Advance
    ) -> tuple[PlannedVisit, ...]:
        self.now += 0.1 * sum(len(task.configs) for task in tasks)
        return tuple(tasks)

    def measure(self, tasks: Sequence[PlannedVisit], until: float) -> Iterator[Visit]:
        for task in tasks:
            if self.now >= until:
                return
            self.now += 0.05 * len(task.configs)
            visit = THERE.visit(replace(task, scenario=task.scenario.partition(BETWEEN)[2]))
            yield replace(visit, scenario=task.scenario)


@pytest.mark.parametrize("budget", [8, 12, 20, 40])
def test_a_budget_that_ends_early_is_not_spent_on_kernels_that_are_never_measured(budget: int) -> None:
    times = {name: Times() for name in WEIGHTS}
    search, bench = together(times), SlowBench(THERE)
    tune(search, bench, Times(), search.add, Silent(), budget=budget)
    cells = {name: found.num_measured() for name, found in times.items()}
    assert sum(cells.values()) * 0.15 > 0.7 * budget
    assert cells["mostly"] == max(cells.values())
