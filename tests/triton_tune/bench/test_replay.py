"""Recorded tables as if they were devices: the same each time, and what a search missed."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_builders import Recorder, SurfaceBench, create_table, recorded_of, surface

from attn_kernels.tuning.space.space import ATTENTION
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit, Times
from triton_tune.run.replay import CELL_S, COMPILE_S, VISIT_S, ReplayBench, loss_of, problem_of, replay
from triton_tune.search.loop import tune
from triton_tune.search.strategies import STRATEGIES
from tuning_table.table import Failure, RecordedRun, Visit

PLENTY = 1e6
THERE = surface(scenarios=72, configs=18, noise=0.02, failing=frozenset({("*", "c3"), ("s5", "c1")}))


def swept() -> RecordedRun:
    visits: list[Visit] = []
    bench = SurfaceBench(THERE)
    assert tune(STRATEGIES["full"](THERE.problem), bench, Times(), visits.append, Recorder(), budget=PLENTY)
    return recorded_of(THERE.problem, visits)


SWEPT = swept()


def replayed(strategy: str, budget: float = PLENTY) -> tuple[list[Visit], float, bool]:
    """The visits, the replay's clock, and whether nothing was left."""
    problem = problem_of(SWEPT, ATTENTION)
    bench = ReplayBench(SWEPT, problem)
    visits: list[Visit] = []
    finished = tune(STRATEGIES[strategy](problem), bench, Times(), visits.append, Recorder(), budget=budget)
    return visits, bench.clock(), finished


def test_the_problem_of_a_full_table_is_the_one_it_was_recorded_for() -> None:
    problem = problem_of(SWEPT, ATTENTION)
    assert problem.candidates == THERE.problem.candidates and problem.features == THERE.problem.features
    assert problem.variants == THERE.problem.variants and problem.possible == THERE.problem.possible


def test_a_full_sweep_of_a_full_table_gives_the_table_back() -> None:
    visits, _, finished = replayed("full")
    assert finished and visits == list(SWEPT.visits)
    loss = loss_of(Times(visits), Times(SWEPT.visits), THERE.problem.scenarios)
    assert (loss.geomean, loss.p95, loss.most) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("strategy", list(STRATEGIES))
@pytest.mark.parametrize("budget", [20.0, PLENTY])
def test_a_replay_is_the_same_each_time(strategy: str, budget: float) -> None:
    assert replayed(strategy, budget) == replayed(strategy, budget)


def test_a_race_measures_less_and_loses_little() -> None:
    visits, seconds, finished = replayed("race")
    full, full_seconds, _ = replayed("full")
    times = Times(visits)
    loss = loss_of(times, Times(SWEPT.visits), THERE.problem.scenarios)
    assert finished and seconds < full_seconds
    assert times.num_measured() < 0.75 * Times(full).num_measured()
    assert 1.0 <= loss.geomean < 1.02


def test_in_half_the_time_a_race_has_lost_less_than_a_sweep() -> None:
    _, seconds, _ = replayed("full")
    losses = {
        name: loss_of(Times(replayed(name, seconds / 2)[0]), Times(SWEPT.visits), THERE.problem.scenarios)
        for name in STRATEGIES
    }
    assert losses["race"].geomean < losses["full"].geomean


def test_the_clock_counts_compiling_visits_and_cells() -> None:
    bench = ReplayBench(SWEPT, problem_of(SWEPT, ATTENTION))
    alike = [s for s in THERE.problem.scenarios if THERE.problem.shape(s) == THERE.problem.shape("s0")]
    tasks = [PlannedVisit(scenario, 1, ("c0", "c1")) for scenario in alike[:3]]
    assert bench.compile(tasks, PLENTY, lambda done, total: None) == tuple(tasks)
    assert bench.clock() == pytest.approx(2 * COMPILE_S)  # the scenarios share their shape
    assert len(list(bench.measure(tasks, PLENTY))) == 3
    assert bench.clock() == pytest.approx(2 * COMPILE_S + 3 * (VISIT_S + 2 * CELL_S))


def test_a_deadline_cuts_compiling_and_measuring_short() -> None:
    bench = ReplayBench(SWEPT, problem_of(SWEPT, ATTENTION))
    tasks = [PlannedVisit("s0", 1, ("c0", "c1", "c2")), PlannedVisit("s4", 1, ("c4",))]
    assert bench.compile(tasks, 1.5 * COMPILE_S, lambda done, total: None) == (
        PlannedVisit("s0", 1, ("c0", "c1")),
    )
    until = bench.clock() + 0.5 * VISIT_S
    again = [PlannedVisit("s0", repeat, ("c0",)) for repeat in (1, 2, 3)]
    assert [visit.repeat for visit in bench.measure(again, until)] == [1]


def test_a_config_gives_its_second_time_when_it_is_asked_again_later() -> None:
    visits = [
        Visit("s0", 1, {"c0": 1.0, "c1": 5.0}),
        Visit("s0", 2, {"c1": 6.0}),
        Visit("s0", 3, {"c0": 2.0}),
    ]
    recorded = recorded_of(surface(scenarios=1, configs=3).problem, visits)
    bench = ReplayBench(recorded, problem_of(recorded, ATTENTION))
    tasks = [PlannedVisit(visit.scenario, visit.repeat, tuple(visit.cells)) for visit in visits]
    assert list(bench.measure(tasks, PLENTY)) == visits


def test_repeats_begin_again_after_the_last() -> None:
    visits = [
        Visit("s0", 1, {"c0": 1.0, "c1": 5.0}),
        Visit("s0", 2, {"c0": 2.0}),
        Visit("s0", 3, {"c0": 3.0}),
    ]
    recorded = recorded_of(surface(scenarios=1, configs=3).problem, visits)
    problem = problem_of(recorded, ATTENTION)
    assert problem.candidates == {"s0": ("c0", "c1")}
    bench = ReplayBench(recorded, problem)
    found = bench.measure([PlannedVisit("s0", repeat, ("c1", "c0")) for repeat in range(1, 6)], PLENTY)
    assert [dict(visit.cells) for visit in found] == [{"c0": c, "c1": 5.0} for c in (1.0, 2.0, 3.0, 1.0, 2.0)]


cells = st.one_of(st.floats(0.5, 50.0), st.just(Failure("no")))
some_visits = st.lists(
    st.builds(
        lambda scenario, cells: (scenario, cells),
        st.sampled_from(["s0", "s1", "s2"]),
        st.dictionaries(st.sampled_from(["c0", "c1", "c2"]), cells, min_size=1),
    ),
    max_size=9,
)


def as_times(rows: list[tuple[str, dict[str, float | Failure]]]) -> Times:
    times = Times()
    for scenario, row in rows:
        times.add(Visit(scenario, times.next_repeat(scenario), row))
    return times


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(some_visits, some_visits)
def test_no_search_is_better_than_the_table(
    found: list[tuple[str, dict[str, float | Failure]]], table: list[tuple[str, dict[str, float | Failure]]]
) -> None:
    recorded = as_times(table)
    scenarios = [scenario for scenario in ("s0", "s1", "s2") if recorded.measured(scenario)]
    timed = [scenario for scenario in scenarios if recorded.medians(scenario)]
    if not timed:
        with pytest.raises(TuningError, match="no config of the table has a time"):
            loss_of(as_times(found), recorded, scenarios)
        return
    loss = loss_of(as_times(found), recorded, scenarios)
    worst = max(max(recorded.slowdowns(scenario).values()) for scenario in timed)
    assert (
        1.0 - 1e-12 <= loss.geomean <= loss.most + 1e-12
        and loss.most <= worst
        and 1.0 <= loss.p95 <= loss.most
    )
    nothing = loss_of(Times(), recorded, scenarios)
    assert nothing.most == worst >= loss.most and loss_of(recorded, recorded, scenarios).most == 1.0


def test_losses_by_hand() -> None:
    table = as_times([(f"s{i}", {"c0": 1.0, "c1": 1.0 + i / 10, "c2": 4.0}) for i in range(5)])
    found = as_times([("s0", {"c1": 9.0}), ("s1", {"c1": 1.0, "c0": 2.0}), ("s2", {"c0": 3.0, "c2": 4.0})])
    some = ["s0", "s1", "s2"]
    loss = loss_of(found, table, some)
    assert (loss.geomean, loss.p95, loss.most) == pytest.approx((1.1 ** (1 / 3), 1.0, 1.1))
    assert loss_of(found, table, [*some, "s3"]).most == 4.0  # nothing was found there


def test_a_config_that_fails_later_in_the_table_is_a_bad_choice() -> None:
    table = as_times([("s0", {"c0": 1.0, "c1": 2.0, "c2": 6.0}), ("s0", {"c0": Failure("no")})])
    found = as_times([("s0", {"c0": 1.0, "c1": 2.0})])
    assert loss_of(found, table, ["s0"]).most == 3.0


def test_a_folder_is_replayed_and_left_as_it_was(tmp_path: Path) -> None:
    with create_table(tmp_path / "table", SWEPT) as table:
        for visit in SWEPT.visits:
            table.append(visit.scenario, visit.cells, visit.repeat)
    before = {path.name: path.read_bytes() for path in (tmp_path / "table").iterdir()}
    lines = replay(tmp_path / "table", "full", PLENTY, ATTENTION)
    assert {path.name: path.read_bytes() for path in (tmp_path / "table").iterdir()} == before
    possible = THERE.problem.possible
    assert lines[0].endswith(f"table: 72 scenarios, {possible} cells")
    assert (
        lines[1].startswith(f"strategy full: {possible} cells (100.0%) in ")
        and "nothing is left to measure" in lines[1]
    )
    assert lines[2].endswith("1.0000 (geometric mean), 1.000 (95%), 1.000 (worst)")
    assert "the budget is used up" in replay(tmp_path / "table", "race", 10.0, ATTENTION)[1]


def test_a_table_without_times_is_refused(tmp_path: Path) -> None:
    with create_table(tmp_path / "table", SWEPT) as table:
        with pytest.raises(TuningError, match="table: holds no rows"):
            replay(tmp_path / "table", "race", PLENTY, ATTENTION)
        table.append("s0", {"c3": Failure("no")})
    with pytest.raises(TuningError, match="no config of the table has a time"):
        replay(tmp_path / "table", "race", PLENTY, ATTENTION)
