"""Recorded tables as if they were devices, what a search missed there, and how a run is summed up."""

from pathlib import Path

import pytest
from tuning_builders import SurfaceBench, create_table, recorded_of, surface

from attn_kernels.tuning.space.space import ATTENTION
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit, SearchProblem, Times
from triton_tune.run.fill import lines_about_failing, lines_of, summarise
from triton_tune.run.progress import Silent
from triton_tune.run.replay import CELL_S, COMPILE_S, VISIT_S, ReplayBench, loss_of, problem_of, replay
from triton_tune.search.loop import tune
from triton_tune.search.strategies import STRATEGIES
from tuning_table.table import Failure, RecordedRun, Visit

PLENTY = 1e6
THERE = surface(scenarios=72, configs=18, noise=0.02, failing=frozenset({("*", "c3"), ("s5", "c1")}))


def swept() -> RecordedRun:
    visits: list[Visit] = []
    bench = SurfaceBench(THERE)
    assert tune(STRATEGIES["full"](THERE.problem), bench, Times(), visits.append, Silent(), budget=PLENTY)
    return recorded_of(THERE.problem, visits)


SWEPT = swept()


def replayed(strategy: str, budget: float = PLENTY) -> tuple[list[Visit], float]:
    """The visits, and the replay's clock."""
    problem = problem_of(SWEPT, ATTENTION)
    bench, visits = ReplayBench(SWEPT, problem), list[Visit]()
    tune(STRATEGIES[strategy](problem), bench, Times(), visits.append, Silent(), budget=budget)
    return visits, bench.clock()


def test_a_full_sweep_of_a_full_table_gives_the_table_back() -> None:
    problem = problem_of(SWEPT, ATTENTION)
    assert problem.candidates == THERE.problem.candidates and problem.features == THERE.problem.features
    visits, _ = replayed("full")
    assert visits == list(SWEPT.visits)
    loss = loss_of(Times(visits), Times(SWEPT.visits), THERE.problem.scenarios)
    assert (loss.geomean, loss.p95, loss.most) == (1.0, 1.0, 1.0)


def test_a_race_measures_less_loses_little_and_is_the_same_each_time() -> None:
    visits, seconds = replayed("race")
    full, full_seconds = replayed("full")
    table, scenarios = Times(SWEPT.visits), THERE.problem.scenarios
    assert Times(visits).num_measured() < 0.75 * Times(full).num_measured() and seconds < full_seconds
    assert 1.0 <= loss_of(Times(visits), table, scenarios).geomean < 1.02
    half = {name: replayed(name, full_seconds / 2)[0] for name in STRATEGIES}
    losses = {name: loss_of(Times(found), table, scenarios).geomean for name, found in half.items()}
    assert losses["race"] < losses["full"]
    assert replayed("race", 20.0) == replayed("race", 20.0)


def test_the_clock_counts_compiling_visits_and_cells_until_a_deadline() -> None:
    bench = ReplayBench(SWEPT, problem_of(SWEPT, ATTENTION))
    alike = [s for s in THERE.problem.scenarios if THERE.problem.shape(s) == THERE.problem.shape("s0")]
    tasks = [PlannedVisit(scenario, 1, ("c0", "c1")) for scenario in alike[:3]]
    assert bench.compile(tasks, PLENTY, lambda done, total: None) == tuple(tasks)
    assert bench.clock() == pytest.approx(2 * COMPILE_S)  # the scenarios share their shape
    assert len(list(bench.measure(tasks, PLENTY))) == 3
    assert bench.clock() == pytest.approx(2 * COMPILE_S + 3 * (VISIT_S + 2 * CELL_S))
    until = bench.clock() + 0.5 * COMPILE_S
    late = [PlannedVisit("s0", 1, ("c0", "c2", "c4")), PlannedVisit("s4", 1, ("c5",))]
    assert bench.compile(late, until, lambda done, total: None) == (PlannedVisit("s0", 1, ("c0", "c2")),)
    assert list(bench.measure(late, until)) == []


def test_a_loss_is_that_of_the_config_found_best_by_the_tables_times() -> None:
    table = Times(Visit(f"s{i}", 1, {"c0": 1.0, "c1": 1.0 + i / 10, "c2": 4.0}) for i in range(5))
    table.add(Visit("s4", 2, {"c0": Failure("no")}))
    found = Times([
        Visit("s0", 1, {"c1": 9.0}), Visit("s1", 1, {"c1": 1.0, "c0": 2.0}), Visit("s2", 1, {"c0": 3.0}),
        Visit("s4", 1, {"c0": 1.0}),
    ])  # fmt: skip
    loss = loss_of(found, table, ["s0", "s1", "s2"])
    assert (loss.geomean, loss.p95, loss.most) == pytest.approx((1.1 ** (1 / 3), 1.0, 1.1))
    assert loss_of(found, table, ["s3"]).most == 4.0  # nothing was found there
    assert loss_of(found, table, ["s4"]).most == pytest.approx(4.0 / 1.4)  # it fails in a later repeat


def test_a_folder_is_replayed_and_one_without_times_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    with create_table(folder, SWEPT) as table:
        with pytest.raises(TuningError, match="table"):
            replay(folder, "race", PLENTY, ATTENTION)
        for visit in SWEPT.visits:
            table.append(visit.scenario, visit.cells, visit.repeat)
    lines = replay(folder, "full", PLENTY, ATTENTION)
    assert lines[0].endswith(f"72 scenarios, {THERE.problem.possible} cells")
    assert "the search is finished" in lines[1] and "1.0000 (geometric mean)" in lines[2]
    assert "the budget is used up" in replay(folder, "race", 10.0, ATTENTION)[1]


PROBLEM = SearchProblem(
    {"s": {}, "t": {}, "u": {}},
    {"s": ("a", "b", "c"), "t": ("a", "b", "c"), "u": ("a",)},
    {"a": "qblock", "b": "stream_k", "c": "pod"},
)
TIMES = Times([
    Visit("s", 1, {"a": 10.0, "b": 20.0, "c": Failure("crashed")}),
    Visit("t", 1, {"a": 100.0, "b": 50.0, "c": Failure("wrong")}),
    Visit("s", 2, {"a": 11.0, "b": 20.0}),
    Visit("s", 3, {"a": 11.0, "c": Failure("crashed again")}),
    Visit("t", 2, {"b": 40.0}),
])  # fmt: skip


def test_the_summary_counts_cells_once_and_failures_by_their_first_reason() -> None:
    summary = summarise(PROBLEM, TIMES, 12.34, False)
    assert lines_of(summary, PROBLEM, TIMES) == [
        "2 of 3 scenarios, 5 rows, 6 of 7 cells (86%), 12.3 s",
        "two repeats of a cell differ by 5.0% (median), 17.0% (90%), 19.7% (99%)",
        "fastest: qblock in 1, stream_k in 1",
        "failed cells: 2",
        "  1: crashed",
        "  1: wrong",
    ]
    assert summary.pop("noise_median") == pytest.approx(0.05)  # of 0, 0, 0.1 and 0.2
    assert {key: value for key, value in summary.items() if "noise" not in key} == {
        "seconds": 12.3, "finished": False, "scenarios": 2, "rows": 5,
        "cells_measured": 6, "cells_possible": 7, "cells_failed": 2, "failures": {"crashed": 1, "wrong": 1},
    }  # fmt: skip


def test_a_scenario_counts_as_hopeless_only_once_every_config_has_failed() -> None:
    there = surface(scenarios=2, configs=2)
    failed = {"c0": Failure("out of memory")}
    visits = [Visit("s0", 1, {**failed, "c1": Failure("out of memory")}), Visit("s1", 1, failed)]
    times = Times(visits)
    hopeless, untried = lines_about_failing(
        ["s0", "s1"], summarise(there.problem, times, 1.0, False), there.problem, times
    )
    assert "s0" in hopeless and "s1" not in hopeless
    assert "s1" in untried and "s0" not in untried
