"""The loop of a run: its budget, the check before it, many kernels at once, and what an interrupt leaves."""

from dataclasses import replace

import pytest
from tuning_builders import Listed, Silent, SurfaceBench, full, surface

from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit, Round, Times
from triton_tune.search.loop import Together, tune
from triton_tune.search.race import CHECK_SHARE, FIRST_ROUND, Race

THERE = surface(noise=0.05)
PLENTY = 1e6


def run(strategy, bench, visits, budget, spent=0.0):
    """Go on from `visits`, which grow."""
    return tune(strategy, bench, Times(visits), visits.append, Silent(), budget=budget, spent=spent)


def a_round(name, *scenarios, share=1.0, repeat=1, config="c0"):
    return Round(name, tuple(PlannedVisit(scenario, repeat, (config,)) for scenario in scenarios), share)


@pytest.mark.parametrize("compile_s", [0.0, 0.5, 7.0])
@pytest.mark.parametrize("spent", [0.0, 12.5, 29.0])
def test_no_visit_begins_after_the_budget(compile_s, spent):
    visits = []
    bench = SurfaceBench(THERE, compile_s)
    assert not run(Race(THERE.problem), bench, visits, 30.0, spent)
    end = 100.0 + 30.0 - spent
    assert max(bench.begun, default=0.0) < end <= bench.now <= end + bench.visit_s
    assert len(visits) == len(bench.begun)
    assert all(until <= end for until in bench.deadlines)


def test_a_round_whose_time_was_too_short_to_compile_moves_on_and_the_last_one_is_no_mistake():
    # Exploring has 10 s, of which compiling may take 6: too few for one config, which takes 8.
    bench = SurfaceBench(THERE, compile_s=8.0)
    strategy = Listed([a_round("early", "s0", share=0.25), a_round("late", "s0", "s1")])
    visits = []
    assert run(strategy, bench, visits, 40.0)
    assert [visit.scenario for visit in visits] == ["s0", "s1"]
    assert strategy.shares[:2] == [0.0, 0.25]  # as if the share were over
    # Of the last 4 s compiling may take 2.4, and needs 3; the longer the time, the more configs.
    bench, visits = SurfaceBench(THERE, compile_s=3.0), []
    assert not run(Listed([a_round("late", "s0")]), bench, visits, 40.0, 36.0)
    assert not visits and bench.now >= 104.0
    assert run(Listed([a_round("late", "s0")]), bench, visits, 45.0, 36.0) and len(visits) == 1


def test_a_round_without_compiled_kernels_is_an_error(monkeypatch):
    def compile_nothing(bench, *_):
        bench.now += 0.5
        return ()

    monkeypatch.setattr(SurfaceBench, "compile", compile_nothing)
    late = a_round("late", "s0")
    for rounds in ([late], [a_round("early", "s0", share=0.25), late]):
        with pytest.raises(TuningError, match="'late'"):
            run(Listed(rounds), SurfaceBench(THERE), [], 40.0)


@pytest.mark.parametrize("when", [1, 30])
def test_an_interrupt_leaves_what_was_recorded_and_the_next_run_goes_on(when):
    undisturbed = []
    assert run(full(THERE.problem), SurfaceBench(THERE), undisturbed, PLENTY)

    def interrupt(count):
        if count == when:
            raise KeyboardInterrupt

    visits = []
    bench = SurfaceBench(THERE)
    bench.on_visit = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(full(THERE.problem), bench, visits, PLENTY)
    assert visits == undisturbed[: when - 1]
    assert run(full(THERE.problem), SurfaceBench(THERE), visits, PLENTY)
    by_name = [sorted(some, key=lambda v: (v.scenario, v.repeat)) for some in (visits, undisturbed)]
    assert by_name[0] == by_name[1]

    def refused(visit):
        raise TuningError("no space left")

    times = Times()
    with pytest.raises(TuningError, match="no space left"):
        tune(full(THERE.problem), SurfaceBench(THERE), times, refused, Silent(), budget=PLENTY)
    assert times.num_visits == 0  # what could not be recorded does not count


@pytest.mark.parametrize("fails", ["s1", "*"])
def test_two_configs_of_the_middle_come_first_where_the_strategy_begins(fails):
    there = surface(configs=4, failing=frozenset({(fails, "c1"), (fails, "c2")}))
    visits = []
    strategy = full(there.problem)
    assert run(strategy, SurfaceBench(there), visits, PLENTY) and not strategy.gave_up
    first, then = visits[:FIRST_ROUND], visits[FIRST_ROUND : 2 * FIRST_ROUND]
    assert all(visit.cells.keys() == {"c1", "c2"} for visit in first)
    assert {visit.scenario for visit in then} == {visit.scenario for visit in first}
    assert all(visit.cells.keys() == {"c0", "c3"} for visit in then)
    assert Times(visits).num_measured() == there.problem.possible


@pytest.mark.parametrize("works", [0, 1])
def test_it_gives_up_once_no_config_works_in_most_of_these_scenarios(works):
    first = []
    run(full(surface(configs=4).problem), SurfaceBench(surface(configs=4)), first, PLENTY)
    bad = [visit.scenario for visit in first[works:FIRST_ROUND]]
    there = surface(configs=4, failing=frozenset((s, f"c{c}") for s in bad for c in range(4)))
    visits = []
    strategy = full(there.problem)
    run(strategy, SurfaceBench(there), visits, PLENTY)
    assert bool(strategy.gave_up) is (works < 1)
    assert len({visit.scenario for visit in visits}) == (FIRST_ROUND if works < 1 else 24)
    again = full(there.problem)  # a later run, from the table
    assert again.next_round(Times(visits), 0.0) is None and bool(again.gave_up) is (works < 1)
    later = full(there.problem).next_round(Times(), CHECK_SHARE)  # when the check's share is over
    assert later is not None and later.share == 1.0


MANY = surface(scenarios=100)
WEIGHTS = {"rare": 0.02, "seldom": 0.08, "often": 0.3, "mostly": 0.6}
PROBLEMS = {
    name: replace(
        MANY.problem,
        features={f"{name}:{s}": row for s, row in MANY.problem.features.items()},
        candidates={f"{name}:{s}": row for s, row in MANY.problem.candidates.items()},
    )
    for name in WEIGHTS
}


def together(times):
    return Together(PROBLEMS, WEIGHTS, "race", times, 0.0)


def visit_of(task):
    return replace(
        MANY.visit(replace(task, scenario=task.scenario.partition(":")[2])), scenario=task.scenario
    )


def measured(times):
    return {name: times.of(problem.scenarios).num_measured() for name, problem in PROBLEMS.items()}


def rounds(search, times, most):
    """Measure so many rounds at most; returns how many there were."""
    for number in range(most):
        planned = search.next_round(times, 0.5)
        if planned is None:
            return number
        for task in planned.tasks:
            times.add(visit_of(task))
    return most


def test_every_kernel_is_begun_at_once_those_that_matter_go_on_first_and_all_are_finished():
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

    def compile(self, tasks, until, progress):
        self.now += 0.1 * sum(len(task.configs) for task in tasks)
        return tuple(tasks)

    def measure(self, tasks, until):
        for task in tasks:
            if self.now >= until:
                return
            self.now += 0.05 * len(task.configs)
            yield visit_of(task)


@pytest.mark.parametrize("budget", [8, 12, 20, 40])
def test_a_budget_that_ends_early_is_not_spent_on_kernels_that_are_never_measured(budget):
    search, bench = together(times := Times()), SlowBench(MANY)
    tune(search, bench, times, lambda visit: None, Silent(), budget=budget)
    cells = measured(times)
    assert sum(cells.values()) * 0.15 > 0.7 * budget
    assert cells["mostly"] == max(cells.values())
