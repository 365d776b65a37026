"""One search of many kernels: who gets how much, and when a kernel is finished."""

from dataclasses import replace

from tuning_builders import surface

from triton_tune.core.problem import Times
from triton_tune.search.together import BETWEEN, Together

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
