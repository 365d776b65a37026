"""How a run is summed up, and how shards divide it equally and the same on every host."""

import re
from argparse import ArgumentTypeError
from dataclasses import replace

import pytest
from tuning_builders import surface

from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit, SearchProblem, Times
from triton_tune.run.fill import lines_about_failing, lines_about_worth, lines_of, summarise
from triton_tune.run.shards import Shard, estimated_s, problem_of_shard, shard_from
from triton_tune.search.race import worth
from tuning_table.table import Failure, Visit

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


def test_the_summary_counts_cells_once_and_failures_by_their_first_reason():
    summary = summarise(PROBLEM, TIMES, 12.34, False)
    told = re.findall(r"[\d.]+|qblock|stream_k|crashed|wrong", " ".join(lines_of(summary, PROBLEM, TIMES)))
    repeats = ["5.0", "17.0", "90", "19.7", "99"]  # percent: the median and two percentiles
    fastest, failed = ["qblock", "1", "stream_k", "1"], ["2", "1", "crashed", "1", "wrong"]
    assert told == ["2", "3", "5", "6", "7", "86", "12.3", *repeats, *fastest, *failed]
    assert summary.pop("noise_median") == pytest.approx(0.05)  # of 0, 0, 0.1 and 0.2
    assert {key: value for key, value in summary.items() if "noise" not in key} == {
        "seconds": 12.3, "finished": False, "scenarios": 2, "rows": 5,
        "cells_measured": 6, "cells_possible": 7, "cells_failed": 2, "failures": {"crashed": 1, "wrong": 1},
    }  # fmt: skip


def test_scenarios_with_a_single_config_are_named_and_an_unfinished_run_is_judged():
    there = surface(scenarios=24, configs=12)
    tasks = [PlannedVisit(s, 1, row) for s, row in there.problem.candidates.items()]
    times = Times(map(there.visit, [*tasks[:-1], replace(tasks[-1], configs=("c0",))]))

    def lines(finished):
        return lines_about_worth(summarise(there.problem, times, 10.0, finished), there.problem, times)

    (alone,) = lines(True)
    assert "s23" in alone
    same, module, half = lines(False)
    found = worth(there.problem, times)
    assert same == alone and found is not None and found.compared == 23
    assert all(f"{ratio:.2f}x" in module for ratio in (found.choice, found.single))
    assert f"{found.by_half:.2f}x" in half
    assert 1 <= found.choice < found.by_half < found.single
    assert worth(there.problem, Times(map(there.visit, tasks[:3]))) is None


def test_a_scenario_counts_as_hopeless_only_once_every_config_has_failed():
    there = surface(scenarios=2, configs=2)
    failed = {"c0": Failure("out of memory")}
    visits = [Visit("s0", 1, {**failed, "c1": Failure("out of memory")}), Visit("s1", 1, failed)]
    times = Times(visits)
    hopeless, untried = lines_about_failing(
        ["s0", "s1"], summarise(there.problem, times, 1.0, False), there.problem, times
    )
    assert "s0" in hopeless and "s1" not in hopeless
    assert "s1" in untried and "s0" not in untried


@pytest.mark.parametrize("count", [1, 3, 8, 24])
def test_each_scenario_is_in_one_shard_and_shards_take_equally_long(count):
    problem = surface(scenarios=120, missing=frozenset({("s1", "c1"), ("s2", "c2")})).problem
    parts = [problem_of_shard(problem, Shard(index, count)) for index in range(1, count + 1)]
    assert sorted(s for part in parts for s in part.scenarios) == sorted(problem.scenarios)
    for part in parts:
        assert all(part.candidates[s] == problem.candidates[s] for s in part.scenarios)
        assert part == problem_of_shard(problem, Shard(parts.index(part) + 1, count))
    costs = [sum(estimated_s(len(row)) for row in part.candidates.values()) for part in parts]
    assert max(costs) < 1.5 * sum(costs) / count
    shapes = [{problem.shape(s) for s in part.scenarios} for part in parts]
    assert sum(map(len, shapes)) <= count + 2  # shapes stay together: each cut through three adds one


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1", "1/0", "-1/2", "a/b", "1/2/3", "1/100000000"])
def test_a_shard_is_a_number_of_a_count(text):
    assert shard_from("2/8") == Shard(2, 8)
    with pytest.raises(ArgumentTypeError):
        shard_from(text)
    with pytest.raises(TuningError, match="--shard 25/25"):  # more than there are scenarios
        problem_of_shard(surface().problem, Shard(25, 25))
