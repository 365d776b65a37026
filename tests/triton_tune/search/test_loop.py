"""The loop of a run: its budget, rounds that do not get anywhere, and what an interrupt leaves."""

import pytest
from tuning_builders import Listed, Silent, SurfaceBench, full, surface

from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit, Round, Strategy, Times
from triton_tune.search.loop import COMPILE_SHARE, tune
from triton_tune.search.race import Race
from tuning_table.table import Visit

THERE = surface(noise=0.05)
PLENTY = 1e6


def run(
    strategy: Strategy, bench: SurfaceBench, visits: list[Visit], budget: float, spent: float = 0.0
) -> bool:
    """Go on from `visits`, which grow."""
    return tune(strategy, bench, Times(visits), visits.append, Silent(), budget=budget, spent=spent)


def a_round(name: str, *scenarios: str, share: float = 1.0, repeat: int = 1, config: str = "c0") -> Round:
    return Round(name, tuple(PlannedVisit(scenario, repeat, (config,)) for scenario in scenarios), share)


@pytest.mark.parametrize("compile_s", [0.0, 0.5, 7.0])
@pytest.mark.parametrize("spent", [0.0, 12.5, 29.0])
def test_no_visit_begins_after_the_budget(compile_s: float, spent: float) -> None:
    visits: list[Visit] = []
    bench = SurfaceBench(THERE, compile_s)
    assert not run(Race(THERE.problem), bench, visits, 30.0, spent)
    end = 100.0 + 30.0 - spent
    assert max(bench.begun, default=0.0) < end <= bench.now <= end + bench.visit_s
    assert len(visits) == len(bench.begun)
    assert all(until <= end for until in bench.deadlines)


def test_of_a_rounds_time_some_is_left_to_measure() -> None:
    bench = SurfaceBench(THERE)
    rounds = [a_round("early", *THERE.problem.scenarios, share=0.25), a_round("late", "s0", repeat=2)]
    visits: list[Visit] = []
    assert run(Listed(rounds), bench, visits, 40.0)
    assert bench.deadlines == pytest.approx([100 + 0.25 * 40 * COMPILE_SHARE, 110 + 30 * COMPILE_SHARE])
    assert [visit.repeat for visit in visits] == [1] * 10 + [2]


def test_a_round_whose_time_was_too_short_to_compile_moves_on() -> None:
    # Exploring has 10 s, of which compiling may take 6: too few for one config, which takes 8.
    bench = SurfaceBench(THERE, compile_s=8.0)
    strategy = Listed([a_round("early", "s0", share=0.25), a_round("late", "s0", "s1")])
    visits: list[Visit] = []
    assert run(strategy, bench, visits, 40.0)
    assert [visit.scenario for visit in visits] == ["s0", "s1"]
    assert strategy.shares[:2] == [0.0, 0.25]  # as if the share were over


def test_a_last_round_that_could_not_compile_in_time_is_no_mistake() -> None:
    # Of the last 4 s compiling may take 2.4, and needs 3.
    bench = SurfaceBench(THERE, compile_s=3.0)
    visits: list[Visit] = []
    assert not run(Listed([a_round("late", "s0")]), bench, visits, 40.0, 36.0)
    assert not visits and bench.now >= 104.0
    # The longer the time that is left, the more configs.
    assert run(Listed([a_round("late", "s0")]), bench, visits, 45.0, 36.0) and len(visits) == 1


class Unable(SurfaceBench):
    """Compiles nothing, soon."""

    def compile(self, tasks: object, until: float, progress: object) -> tuple[PlannedVisit, ...]:
        self.now += 0.5
        return ()


@pytest.mark.parametrize("rounds", [
    [a_round("late", "s0")],
    [a_round("early", "s0", share=0.25), a_round("late", "s0")],
])  # fmt: skip
def test_a_round_without_compiled_kernels_is_an_error(rounds: list[Round]) -> None:
    with pytest.raises(TuningError, match="'late'"):
        run(Listed(rounds), Unable(THERE), [], 40.0)


@pytest.mark.parametrize("when", [1, 30])
def test_an_interrupt_leaves_what_was_recorded_and_the_next_run_goes_on(when: int) -> None:
    undisturbed: list[Visit] = []
    assert run(full(THERE.problem), SurfaceBench(THERE), undisturbed, PLENTY)

    def interrupt(count: int) -> None:
        if count == when:
            raise KeyboardInterrupt

    visits: list[Visit] = []
    bench = SurfaceBench(THERE)
    bench.on_visit = interrupt
    with pytest.raises(KeyboardInterrupt):
        run(full(THERE.problem), bench, visits, PLENTY)
    assert visits == undisturbed[: when - 1]
    assert run(full(THERE.problem), SurfaceBench(THERE), visits, PLENTY)
    by_name = [sorted(some, key=lambda v: (v.scenario, v.repeat)) for some in (visits, undisturbed)]
    assert by_name[0] == by_name[1]


def test_a_visit_that_could_not_be_recorded_does_not_count() -> None:
    def refused(visit: Visit) -> None:
        raise TuningError("no space left")

    times = Times()
    with pytest.raises(TuningError, match="no space left"):
        tune(full(THERE.problem), SurfaceBench(THERE), times, refused, Silent(), budget=PLENTY)
    assert times.num_visits == 0
