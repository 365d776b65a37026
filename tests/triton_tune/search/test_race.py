"""What a race holds to be hopeless, and that no scenario falls out of it: on problems made by hand."""

import random
from collections.abc import Mapping, Sequence

import pytest
from plain_race import PlainRace
from tuning_builders import features, surface

from attn_kernels.tuning.space.space import ATTENTION
from triton_tune.core.problem import PlannedVisit, SearchProblem, Times
from triton_tune.search.race import Race, RaceRules
from tuning_table.table import Visit


def attention(rows: Mapping[str, Mapping[str, int]], names: Sequence[str]) -> SearchProblem:
    """A problem in which all configs are candidates everywhere."""
    return SearchProblem(
        rows, dict.fromkeys(rows, tuple(names)), {}, dict.fromkeys(names, "qblock"), likeness=ATTENTION
    )


def test_of_a_slow_variant_the_best_config_is_chosen() -> None:
    # Both configs of "naive" are far slower than the best, one of them less.
    rows = {f"s{i}": features(2**i, 1, 1024) for i in range(6)}
    speeds = {"fast": 1.0, "awful": 3.9, "bad": 2.0}
    problem = SearchProblem(
        rows, dict.fromkeys(rows, tuple(speeds)), {}, {"fast": "qblock", "awful": "naive", "bad": "naive"}
    )
    swept = Visit("s0", 1, speeds), Visit("s3", 1, speeds)
    planned = Race(problem, RaceRules(explore=(2, 0, 0))).next_round(Times(swept), 0.7)
    assert planned is not None and planned.name == "portfolio of 2, repeat 1"
    assert {config for task in planned.tasks for config in task.configs} == {"fast", "bad"}


def line_of(count: int, slow_in: int, rules: RaceRules) -> list[str]:
    """The configs to measure in the last of `count` scenarios in a row; `slow_in` of them timed "slow"."""
    rows = {f"s{i}": features(1, 1, 1024 * 2**i) for i in range(count)}
    problem = SearchProblem(
        rows,
        dict.fromkeys(rows, ("fast", "slow")),
        {},
        dict.fromkeys(("fast", "slow"), "qblock"),
        likeness=ATTENTION,
    )
    visits = [
        Visit(f"s{i}", 1, {"fast": 1.0, "slow": 2.0} if i < slow_in else {"fast": 1.0}) for i in range(count)
    ]
    times = Times(visits)
    for name in rows:
        times.add(Visit(name, 2, {"fast": 1.0}))
    planned = Race(problem, rules).next_round(times, 0.9)
    return [] if planned is None else [task.scenario for task in planned.tasks]


def test_hopeless_is_what_was_slow_in_the_five_nearest_of_the_family() -> None:
    rules = RaceRules()
    assert rules.neighbours == 5
    assert line_of(6, 5, rules) == []
    assert line_of(6, 4, rules) == ["s5"] or set(line_of(6, 4, rules)) == {"s4", "s5"}
    assert line_of(7, 5, rules) == []


@pytest.mark.parametrize(("position", "hopeless"), [(0, True), (1, False), (5, False)])
def test_only_the_nearest_count(position: int, hopeless: bool) -> None:
    """Six scenarios tried the config, and at `position`, 0 the farthest, it was not slow."""
    rows = {f"s{i}": features(1, 1, 1024 * 2**i) for i in range(7)}
    names = ("fast", "other")
    problem = SearchProblem(
        rows, dict.fromkeys(rows, names), {}, dict.fromkeys(names, "qblock"), likeness=ATTENTION
    )
    times = Times(
        Visit(f"s{i}", repeat, {"fast": 1.0, "other": 1.1 if i == position else 1.2})
        for i in range(6)
        for repeat in (1, 2)
    )
    times.add(Visit("s6", 1, {"fast": 1.0}))
    times.add(Visit("s6", 2, {"fast": 1.0}))
    # Only "fast" is everywhere, and the portfolio needs no other: a loss of 20% is said to be fine.
    planned = Race(problem, RaceRules(portfolio_loss=0.2)).next_round(times, 0.9)
    visits = [] if planned is None else [(task.scenario, task.configs) for task in planned.tasks]
    assert visits == ([] if hopeless else [("s6", ("other",))])


def test_other_families_do_not_count() -> None:
    rows = {f"s{i}": features(1, 1, 1024 + i, element=1 if i == 6 else 2) for i in range(7)}
    names = ("fast", "slow")
    problem = SearchProblem(
        rows, dict.fromkeys(rows, names), {}, dict.fromkeys(names, "qblock"), likeness=ATTENTION
    )
    times = Times(Visit(f"s{i}", r, {"fast": 1.0, "slow": 2.0}) for i in range(6) for r in (1, 2))
    times.add(Visit("s6", 1, {"fast": 1.0}))
    times.add(Visit("s6", 2, {"fast": 1.0}))
    planned = Race(problem).next_round(times, 0.9)
    assert planned is not None and planned.tasks == (PlannedVisit("s6", 3, ("slow",)),)


def test_scenarios_without_candidates_do_not_hide_others() -> None:
    # Far from everything else lie more scenarios without candidates than are refined at a time.
    rows = {f"empty{i}": features(2**i, 4096, 1 << 20) for i in range(8)}
    rows |= {f"s{i}": features(1 + i, 1, 1024) for i in range(8)}
    names = ("a", "b")
    candidates = {s: () if s.startswith("empty") else names for s in rows}
    problem = SearchProblem(rows, candidates, {}, dict.fromkeys(names, "qblock"), likeness=ATTENTION)
    visits = [Visit(s, r, {"a": 1.0}) for s in rows if candidates[s] for r in (1, 2)]
    planned = Race(problem, RaceRules(explore=(3, 2, 1), refine=2)).next_round(Times(visits), 0.9)
    # "a" loses nothing as far as anything is known, but nothing is known of "b".
    assert planned is not None and planned.name == "refine" and len(planned.tasks) == 2
    first = Race(problem, RaceRules(explore=(3, 2, 1), refine=2)).next_round(Times(), 0.0)
    assert first is not None and len(first.tasks) == 3


def test_no_scenario_is_left_without_a_time_if_a_config_may_have_one() -> None:
    rows = {f"s{i}": features(1, 1, 1024 + i) for i in range(7)}
    candidates = {s: ("fast", "slow") if s != "s6" else ("slow",) for s in rows}
    problem = SearchProblem(rows, candidates, {}, {"fast": "qblock", "slow": "qblock"})
    times = Times(Visit(f"s{i}", r, {"fast": 1.0, "slow": 2.0}) for i in range(6) for r in (1, 2))
    planned = Race(problem).next_round(times, 0.9)
    assert planned is not None and planned.tasks == (PlannedVisit("s6", 1, ("slow",)),)


@pytest.mark.parametrize("seed", range(12))
def test_its_rounds_are_those_of_the_race_without_arrays(seed: int) -> None:
    """Runs over random problems that lose visits, repeat them and withdraw them."""
    rng = random.Random(seed)
    pairs = [(f"s{s}", f"c{c}") for s in range(40) for c in range(12)]
    there = surface(
        scenarios=40,
        seed=seed,
        noise=0.1,
        missing=frozenset(pair for pair in pairs if rng.random() < 0.2 or pair[0] == "s3"),
        failing=frozenset({("*", "c0"), *(pair for pair in pairs if rng.random() < 0.05)}),
        always={f"s{s}": (f"c{s % 12}",) for s in range(0, 40, 3)},
    )
    rules = RaceRules(
        explore=(rng.randrange(2, 6), 2, 1),
        hopeless=rng.choice([1.05, 1.15]),
        neighbours=rng.randrange(1, 4),
        portfolio_most=rng.randrange(2, 8),
        refine=rng.randrange(1, 5),
    )
    race, plain = Race(there.problem, rules), PlainRace(there.problem, rules)
    times, kept, spent = Times(), list[Visit](), rng.choice([0.0, 0.7])
    names = set()
    while (planned := race.next_round(times, spent)) is not None:
        assert planned == plain.next_round(times, spent)
        names.add(planned.name.split()[0])
        done = [task for task in planned.tasks if rng.random() < 0.7] or planned.tasks[:1]
        for visit in map(there.visit, done):
            times.add(visit)
            kept.append(visit)
        if rng.random() < 0.3:
            times.withdraw(kept.pop(rng.randrange(len(kept))))
    assert plain.next_round(times, spent) is None
    assert "portfolio" in names
