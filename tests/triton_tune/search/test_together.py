"""One search of many kernels: who gets how much, and when a kernel is finished."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
from tuning_builders import Silent, SurfaceBench, surface

from triton_tune.core.problem import Advance, PlannedVisit, Times
from triton_tune.search.loop import Together, tune
from tuning_table.table import Visit

THERE = surface(scenarios=100)
WEIGHTS = {"rare": 0.02, "seldom": 0.08, "often": 0.3, "mostly": 0.6}
PROBLEMS = {
    name: replace(
        THERE.problem,
        features={f"{name}:{s}": row for s, row in THERE.problem.features.items()},
        candidates={f"{name}:{s}": row for s, row in THERE.problem.candidates.items()},
    )
    for name in WEIGHTS
}


def together(times: Times) -> Together:
    return Together(PROBLEMS, WEIGHTS, "race", times, 0.0)


def visit_of(task: PlannedVisit) -> Visit:
    return replace(
        THERE.visit(replace(task, scenario=task.scenario.partition(":")[2])), scenario=task.scenario
    )


def measured(times: Times) -> dict[str, int]:
    return {name: times.of(problem.scenarios).num_measured() for name, problem in PROBLEMS.items()}


def rounds(search: Together, times: Times, most: int) -> int:
    """Measure so many rounds at most; returns how many there were."""
    for number in range(most):
        planned = search.next_round(times, 0.5)
        if planned is None:
            return number
        for task in planned.tasks:
            times.add(visit_of(task))
    return most


def test_every_kernel_is_begun_at_once_those_that_matter_go_on_first_and_all_are_finished() -> None:
    search = together(times := Times())
    rounds(search, times, 1)
    assert all(measured(times).values()) and not search.finished
    while "mostly" not in search.finished:
        assert rounds(search, times, 1) == 1
    assert measured(times)["rare"] < measured(times)["mostly"] / 2
    assert rounds(search, times, 1000) < 1000
    assert search.finished == set(WEIGHTS) and not search.gave_up
    later = together(times)  # of a later run, which has the tables
    assert later.finished == set(WEIGHTS) and later.next_round(times, 0.0) is None


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
            yield visit_of(task)


@pytest.mark.parametrize("budget", [8, 12, 20, 40])
def test_a_budget_that_ends_early_is_not_spent_on_kernels_that_are_never_measured(budget: int) -> None:
    search, bench = together(times := Times()), SlowBench(THERE)
    tune(search, bench, times, lambda visit: None, Silent(), budget=budget)
    cells = measured(times)
    assert sum(cells.values()) * 0.15 > 0.7 * budget
    assert cells["mostly"] == max(cells.values())
