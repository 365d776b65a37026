"""Shards divide a problem into equal parts that are the same on every host."""

from argparse import ArgumentTypeError

import pytest
from tuning_builders import surface

from triton_tune.core.errors import TuningError
from triton_tune.run.shards import Shard, estimated_s, problem_of_shard, shard_from


@pytest.mark.parametrize("count", [1, 3, 8, 24])
def test_each_scenario_is_in_one_shard_and_shards_take_equally_long(count: int) -> None:
    problem = surface(scenarios=120, missing=frozenset({("s1", "c1"), ("s2", "c2")})).problem
    parts = [problem_of_shard(problem, Shard(index, count)) for index in range(1, count + 1)]
    assert sorted(s for part in parts for s in part.scenarios) == sorted(problem.scenarios)
    for part in parts:
        assert all(part.candidates[s] == problem.candidates[s] for s in part.scenarios)
        assert part == problem_of_shard(problem, Shard(parts.index(part) + 1, count))
    costs = [sum(estimated_s(len(row)) for row in part.candidates.values()) for part in parts]
    assert max(costs) < 1.5 * sum(costs) / count


def test_shards_keep_shapes_together() -> None:
    problem = surface(scenarios=120).problem
    shapes = [
        {problem.shape(s) for s in problem_of_shard(problem, Shard(index, 6)).scenarios}
        for index in range(1, 7)
    ]
    assert sum(map(len, shapes)) <= 6 + 2  # three shapes; each cut adds one


def test_more_shards_than_scenarios_are_refused() -> None:
    with pytest.raises(TuningError, match="--shard 25/25"):
        problem_of_shard(surface().problem, Shard(25, 25))


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1", "1/0", "-1/2", "a/b", "1/2/3", "1/100000000"])
def test_a_shard_is_a_number_of_a_count(text: str) -> None:
    assert shard_from("2/8") == Shard(2, 8)
    with pytest.raises(ArgumentTypeError):
        shard_from(text)
