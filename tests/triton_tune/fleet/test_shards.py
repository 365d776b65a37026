"""Shards divide a problem into equal parts that are the same on every host."""

import pytest
from tuning_builders import surface

from triton_tune.core.errors import TuningError
from triton_tune.fleet.calibration import Calibration, calibration_of
from triton_tune.fleet.shards import Shard, estimated_s, problem_of_shard, shard_from
from tuning_table.table import Failure, Visit


@pytest.mark.parametrize("count", [1, 2, 3, 8, 24])
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
    with pytest.raises(TuningError, match="--shard 25/25: there are only 24 scenarios to divide"):
        problem_of_shard(surface().problem, Shard(25, 25))


@pytest.mark.parametrize("text", ["", "0/2", "3/2", "1", "1/0", "-1/2", "a/b", "1/2/3", "1/100000000"])
def test_no_shards(text: str) -> None:
    with pytest.raises(ValueError, match="is no shard: write 1/8"):
        shard_from(text)
    assert shard_from("2/8") == Shard(2, 8)


def test_the_calibration_is_the_same_on_every_host_and_prefers_the_baseline() -> None:
    plain = surface()
    found = calibration_of(plain.problem)
    assert found == calibration_of(surface().problem)
    assert found.config == plain.problem.candidates[found.scenario][0]
    with_baseline = surface(always={found.scenario: ("c5",)})
    assert calibration_of(with_baseline.problem) == Calibration(found.scenario, "c5")


def test_a_calibration_is_a_median_and_unknown_if_it_failed() -> None:
    cell = Calibration("s", "c")
    visits = [Visit("s", 1, {"c": time}) for time in (3.0, 1.0, 2.0)]
    assert cell.microseconds(visits) == 2.0
    assert cell.microseconds([*visits, Visit("s", 1, {"c": Failure("broke")})]) is None
    assert cell.microseconds([]) is None
