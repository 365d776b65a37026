"""Strategies: which cells they plan, by the table alone, and what a race saves and loses."""

import random
from collections import Counter
from statistics import geometric_mean

import pytest
from tuning_builders import Silent, SurfaceBench, full, rounds_of, surface

from triton_tune.core.problem import Times
from triton_tune.search.loop import tune
from triton_tune.search.neighbours import Distances
from triton_tune.search.race import FULL, REPEATS, Race, RaceRules

QUICK = RaceRules(explore=(2, 8), refine=2, neighbours=2, portfolio_size=(2, 4))


def quick_race(problem):
    return Race(problem, QUICK)


def holes(seed):
    """A quarter of all pairs are no candidates, nor is any of s3; c5 is one in s1 only."""
    rng = random.Random(seed)
    pairs = [(f"s{s}", f"c{c}") for s in range(24) for c in range(12)]
    some = {pair for pair in pairs if rng.random() < 0.25 or pair[0] == "s3" or pair[1] == "c5"}
    return frozenset(some - {("s1", "c5")})


SURFACES = {
    "plain": surface(),
    "noisy": surface(seed=1, noise=0.1),
    "holes": surface(seed=2, missing=holes(2)),
    "failures": surface(seed=3, failing=frozenset({("*", "c0"), ("*", "c7"), ("s4", "c1"), ("s9", "c2")})),
    "all fails": surface(scenarios=12, failing=frozenset(("*", f"c{c}") for c in range(12))),
    "one": surface(scenarios=1, configs=1),
    "none": surface(scenarios=0),
}


@pytest.fixture(params=list(SURFACES))
def there(request):
    return SURFACES[request.param]


def finished(there, strategy):
    visits = []
    for _ in rounds_of(strategy, there, visits):
        assert len(visits) < 1000
    return Times(visits)


@pytest.mark.parametrize("make", [full, quick_race, Race])
@pytest.mark.parametrize("spent", [0.0, 0.7])
def test_rounds_plan_candidates_each_at_most_twice(there, make, spent):
    problem, cells = there.problem, Counter[tuple[str, str]]()
    repeats = Counter[str]()
    for planned in rounds_of(make(problem), there, [], spent=spent):
        assert planned.tasks and 0.0 < planned.share <= 1.0
        assert len({task.scenario for task in planned.tasks}) == len(planned.tasks)
        for task in planned.tasks:
            repeats[task.scenario] += 1
            assert task.repeat == repeats[task.scenario]
            assert task.configs and set(task.configs) <= set(problem.candidates[task.scenario])
            assert len(set(task.configs)) == len(task.configs)
            cells.update((task.scenario, config) for config in task.configs)
    assert not cells or max(cells.values()) <= REPEATS


@pytest.mark.parametrize("make", [full, quick_race])
@pytest.mark.parametrize("name", ["noisy", "holes", "failures"])
def test_the_next_round_follows_from_the_table_alone(name, make):
    there = SURFACES[name]
    one = make(there.problem)
    visits = []
    for planned in rounds_of(one, there, visits):
        assert make(there.problem).next_round(Times(visits), 0.0) == planned
        # Killed within the round: a fresh strategy, and one that has gone further, plan the same.
        part = [*visits, *map(there.visit, planned.tasks[: len(planned.tasks) // 2])]
        rest = make(there.problem).next_round(Times(part), 0.0)
        assert one.next_round(Times(part), 0.0) == rest
        # A table read back has a scenario's visits in order, but not those of different scenarios.
        by_scenario = sorted(part, key=lambda visit: visit.scenario)
        again = make(there.problem).next_round(Times(by_scenario), 0.0)
        assert (again and set(again.tasks)) == (rest and set(rest.tasks))


def test_full_sweeps_everything_and_times_the_best_again():
    there = SURFACES["noisy"]
    times = finished(there, full(there.problem))
    assert times.num_measured() == there.problem.possible
    for scenario in there.problem.scenarios:
        once = {c: cells[0] for c, cells in times.measured(scenario).items()}
        best = min(once.values())
        expected = {c for c, cell in once.items() if cell <= FULL.again * best}
        twice = {c for c, cells in times.measured(scenario).items() if len(cells) == 2}
        assert expected <= twice  # with whatever came near when the best proved slower than at first
        assert all(once[c] <= 1.5 * best for c in twice)


def test_a_race_measures_less_loses_little_and_is_the_same_each_time():
    there = surface(scenarios=144, configs=18, noise=0.02, failing=frozenset({("*", "c3"), ("s5", "c1")}))

    def measured(make, budget):
        bench, times = SurfaceBench(there, visit_s=0.02, cell_s=0.02), Times()
        start = bench.clock()
        tune(make(there.problem), bench, times, lambda visit: None, Silent(), budget=budget)
        return times, bench.clock() - start

    swept, full_seconds = measured(full, 1e6)
    race, seconds = measured(Race, 1e6)

    def loss(found):
        """Of the configs found best, by the times of the full sweep; the slowest counts where none is."""
        ratios = []
        for scenario in there.problem.scenarios:
            slowdowns, medians = swept.slowdowns(scenario), found.medians(scenario)
            best = min(medians, key=medians.__getitem__, default="")
            ratios.append(slowdowns.get(best, max(slowdowns.values())))
        return geometric_mean(ratios)

    assert race.num_measured() < 0.75 * swept.num_measured() and seconds < full_seconds
    assert loss(swept) == 1.0 <= loss(race) < 1.02
    half = full_seconds / 2
    assert loss(measured(Race, half)[0]) < loss(measured(full, half)[0])
    assert measured(Race, 5.0)[0]._cells == measured(Race, 5.0)[0]._cells


def test_before_a_race_ends_the_first_scenarios_have_times_of_what_was_left_out_elsewhere():
    there = surface(scenarios=72, configs=18, noise=0.02)
    times, problem = finished(there, Race(there.problem)), there.problem
    whole = [s for s in problem.scenarios if len(times.measured(s)) == len(problem.candidates[s])]
    first = Distances(problem).representatives(problem.scenarios, RaceRules.verify)
    assert set(first) <= set(whole) < set(problem.scenarios)
