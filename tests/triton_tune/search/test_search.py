"""Strategies: the cells that they plan, that these depend on the table alone, and where they end."""

import random
from collections import Counter

import pytest
from tuning_builders import Surface, rounds_of, surface

from attn_kernels.tuning.space.space import ATTENTION
from triton_tune.core.problem import SearchProblem, Times
from triton_tune.search.race import Race, RaceRules
from triton_tune.search.strategies import REPEATS, STRATEGIES, SWEPT_AGAIN, Full
from tuning_table.table import Failure, Visit

QUICK = RaceRules(explore=(3, 2, 1), refine=2, neighbours=2, portfolio_most=4)


def quick_race(problem: SearchProblem) -> Race:
    return Race(problem, QUICK)


def holes(seed: int) -> frozenset[tuple[str, str]]:
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
    "always": surface(seed=4, noise=0.02, always={f"s{s}": (f"c{s % 12}",) for s in range(24)}),
    "one": surface(scenarios=1, configs=1),
    "none": surface(scenarios=0),
}


@pytest.fixture(params=list(SURFACES))
def there(request: pytest.FixtureRequest) -> Surface:
    return SURFACES[request.param]


def finished(there: Surface, strategy: Race | Full, spent: float = 0.0) -> Times:
    visits: list[Visit] = []
    for _ in rounds_of(strategy, there, visits, spent=spent):
        assert len(visits) < 1000
    return Times(visits)


@pytest.mark.parametrize("make", [Full, quick_race, Race])
@pytest.mark.parametrize("spent", [0.0, 0.7])
def test_rounds_plan_candidates_each_at_most_twice(there: Surface, make: type[Full], spent: float) -> None:
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


@pytest.mark.parametrize("make", [Full, quick_race])
@pytest.mark.parametrize("name", ["noisy", "holes", "failures", "always"])
def test_the_next_round_follows_from_the_table_alone(name: str, make: type[Full]) -> None:
    there = SURFACES[name]
    one = make(there.problem)
    visits: list[Visit] = []
    for number, planned in enumerate(rounds_of(one, there, visits)):
        assert make(there.problem).next_round(Times(visits), 0.0) == planned
        # Killed within the round: a fresh strategy, and one that has gone further, plan the same.
        part = [*visits, *map(there.visit, planned.tasks[: len(planned.tasks) // 2])]
        rest = make(there.problem).next_round(Times(part), 0.0)
        assert one.next_round(Times(part), 0.0) == rest
        # A table read back has a scenario's visits in order, but not those of different scenarios.
        by_scenario = sorted(part, key=lambda visit: visit.scenario)
        again = make(there.problem).next_round(Times(by_scenario), 0.0)
        assert (again and set(again.tasks)) == (rest and set(rest.tasks))
        if number == 0:  # the first round is a sweep: what is left of it is what was not done
            assert rest is not None
            assert set(rest.tasks) == {*planned.tasks[len(planned.tasks) // 2 :]}


def test_the_order_of_visits_is_shuffled_by_the_seed_and_the_repeat() -> None:
    def orders(seed: int) -> list[list[str]]:
        there = surface(seed=seed)
        problem = SearchProblem(
            there.problem.features, there.problem.candidates, {}, there.problem.variants, seed, ATTENTION
        )
        return [[task.scenario for task in r.tasks] for r in rounds_of(Full(problem), there, [])]

    first, second = orders(0)
    assert first != second != sorted(second) and first != list(SURFACES["plain"].problem.scenarios)
    assert sorted(first) == sorted(second) and orders(0) == [first, second]
    assert orders(1)[0] != first


def test_full_sweeps_everything_and_times_the_best_again() -> None:
    there = SURFACES["noisy"]
    times = finished(there, Full(there.problem))
    assert times.num_measured() == there.problem.possible
    for scenario in there.problem.scenarios:
        once = {c: there.cell(scenario, c, 1) for c in there.problem.candidates[scenario]}
        best = min(once.values())
        expected = {c for c, cell in once.items() if cell <= SWEPT_AGAIN * best}
        twice = {c for c, cells in times.measured(scenario).items() if len(cells) == 2}
        assert expected <= twice  # with whatever came near when the best proved slower than at first
        assert all(once[c] <= 1.5 * best for c in twice)


def test_with_time_enough_only_the_hopeless_stays_untried(there: Surface) -> None:
    rules, problem = QUICK, there.problem
    for spent in (0.0, 0.7):  # with and without an exploration
        times = finished(there, quick_race(problem), spent)
        for scenario in problem.scenarios:
            tried = times.measured(scenario)
            alike = [s for s in problem.scenarios if problem.family(s) == problem.family(scenario)]
            for config in set(problem.candidates[scenario]) - set(tried):
                slow = [s for s in alike if times.slowdowns(s).get(config, 9.0) > rules.hopeless]
                assert len([s for s in slow if config in times.measured(s)]) >= rules.neighbours
            if problem.candidates[scenario] and all(isinstance(c, Failure) for [c, *_] in tried.values()):
                assert set(tried) == set(problem.candidates[scenario])


def test_most_is_spared_where_little_may_win() -> None:
    there = surface(scenarios=96, configs=24)
    times = finished(there, Race(there.problem))
    assert times.num_measured() < 0.75 * there.problem.possible
    lost = [
        there.cell(s, min(found, key=found.__getitem__), 1)
        / min(there.cell(s, c, 1) for c in there.problem.candidates[s])
        for s in there.problem.scenarios
        for found in [times.medians(s)]
    ]
    assert sum(lost) / len(lost) < 1.02 and sum(x == 1.0 for x in lost) > 0.85 * len(lost)


def test_what_is_always_to_be_measured_is_measured_twice_everywhere() -> None:
    there = SURFACES["always"]
    slow = [
        s
        for s, (c,) in there.problem.always.items()
        if there.cell(s, c, 1) > 1.5 * min(there.cell(s, other, 1) for other in there.problem.candidates[s])
    ]
    assert len(slow) > 3
    for spent in (0.0, 0.7):
        times = finished(there, quick_race(there.problem), spent)
        for scenario, (config,) in there.problem.always.items():
            assert len(times.measured(scenario)[config]) == REPEATS


def test_of_every_variant_one_config_is_measured_everywhere() -> None:
    for name in ("plain", "noisy", "failures"):
        there = SURFACES[name]
        times = finished(there, quick_race(there.problem))
        everywhere = set.intersection(*(set(times.measured(s)) for s in there.problem.scenarios))
        assert {there.problem.variants[config] for config in everywhere} == {"qblock", "segmented", "naive"}


def test_failures_count_as_slow_and_are_not_tried_again() -> None:
    there = SURFACES["failures"]
    times = finished(there, quick_race(there.problem))
    for scenario in there.problem.scenarios:
        assert len(times.measured(scenario).get("c0", [])) <= 1  # it fails wherever it is tried
    assert times.failures() == {"disagrees with the reference": sum(times.failures().values())}
    tried = sum("c0" in times.measured(s) for s in there.problem.scenarios)
    assert 0 < tried < len(there.problem.scenarios)


def test_exploring_spreads_over_families_and_shapes() -> None:
    there = SURFACES["plain"]
    race = Race(there.problem, RaceRules(explore=(4, 2, 1)))
    names, swept = [], Counter[tuple[int, ...]]()
    for planned in rounds_of(race, there, []):
        names.append(planned.name)
        if planned.name == "explore families":
            assert planned.share == RaceRules().explore_share
            swept.update(there.problem.shape(task.scenario) for task in planned.tasks)
            assert all(task.configs == there.problem.candidates[task.scenario] for task in planned.tasks)
    assert names[0] == "explore families" and swept == {(32, 8, 128, 16, 2): 4, (32, 8, 128, 16, 1): 2}
    assert "explore shapes" in names[:2] and names[2].startswith("portfolio")
    assert "explore" not in str(race.next_round(Times(), RaceRules().explore_share))


def test_strategies_by_name() -> None:
    assert {name: type(make(SURFACES["one"].problem)) for name, make in STRATEGIES.items()} == {
        "race": Race,
        "full": Full,
    }


def test_times_from_which_visits_were_withdrawn_are_those_of_the_rest() -> None:
    there = SURFACES["noisy"]
    visits: list[Visit] = []
    for _ in rounds_of(Full(there.problem), there, visits):
        pass
    rng = random.Random(0)
    times, gone = Times(visits), rng.sample(visits, len(visits) // 2)
    for visit in gone:
        times.slowdowns(visit.scenario)
        times.withdraw(visit)
    rest = Times(visit for visit in visits if visit not in gone)
    assert times.num_visits == rest.num_visits == len(visits) - len(gone)
    for scenario in there.problem.scenarios:
        assert times.next_repeat(scenario) == rest.next_repeat(scenario)
        assert times.measured(scenario) == rest.measured(scenario)
        assert times.slowdowns(scenario) == rest.slowdowns(scenario)
