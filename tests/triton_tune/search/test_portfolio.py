"""The portfolio is a greedy cover: against brute force over all choices of as many configs."""

import math
from collections.abc import Iterable, Mapping
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triton_tune.search.race import ABSENT, cover

CONFIGS = "abcdefg"
rows = st.dictionaries(st.sampled_from(CONFIGS), st.floats(1.0, 8.0), max_size=7)
tables = st.dictionaries(st.sampled_from(["s", "t", "u", "v", "w"]), rows, max_size=5)
weightings = st.lists(st.floats(0.0, 5.0), min_size=5, max_size=5)
starts = st.lists(st.sampled_from([*CONFIGS, "unknown"]), unique=True, max_size=2).map(tuple)
Table = Mapping[str, Mapping[str, float]]
quiet = settings(max_examples=120, deadline=None, derandomize=True, database=None)


def covered(
    table: Table, weights: Mapping[str, float], *, start: tuple[str, ...] = (), loss: float, most: int
) -> tuple[str, ...]:
    """The cover by the names of scenarios and configs; a config without a time in a scenario has none."""
    names = list(dict.fromkeys([*(config for row in table.values() for config in row), *start]))
    slowdowns = np.array([[row.get(name, math.inf) for name in names] for row in table.values()])
    columns = cover(
        slowdowns.reshape(len(table), len(names)),
        np.array([weights[s] for s in table]),
        start=[names.index(config) for config in start],
        loss=loss,
        most=most,
    )
    return tuple(names[column] for column in columns)


def lost(table: Table, weights: Mapping[str, float], chosen: Iterable[str]) -> float:
    """Logarithm of the slowdown that the best of the chosen has, weighted; without a time it is ABSENT."""
    best = {s: min((row[c] for c in chosen if c in row), default=ABSENT) for s, row in table.items()}
    return sum(weights[s] * math.log(min(ABSENT, slower)) for s, slower in best.items())


def weighted(table: Table, weights: list[float]) -> dict[str, float]:
    return dict(zip(table, weights, strict=False))


@quiet
@given(tables, weightings, starts, st.integers(1, 4))
def test_greedy_is_within_its_bound_of_the_best_choice(
    table: Table, some: list[float], start: tuple[str, ...], more: int
) -> None:
    weights = weighted(table, some)
    chosen = covered(table, weights, start=start, loss=0.0, most=len(start) + more)
    left = [config for config in CONFIGS if config not in start]
    before = lost(table, weights, start)
    best = max(before - lost(table, weights, (*start, *others)) for others in combinations(left, more))
    assert chosen[: len(start)] == start and len(chosen) <= len(start) + more
    assert len(set(chosen)) == len(chosen)
    assert before - lost(table, weights, chosen) >= (1 - 1 / math.e) * best - 1e-9


@quiet
@given(tables, weightings, starts, st.floats(0.001, 1.0))
def test_it_stops_as_soon_as_little_is_lost(
    table: Table, some: list[float], start: tuple[str, ...], loss: float
) -> None:
    weights = weighted(table, some)
    chosen = covered(table, weights, start=start, loss=loss, most=100)
    enough = math.log1p(loss) * sum(weights.values())
    if len(chosen) > len(start):
        assert lost(table, weights, chosen[:-1]) > enough
    if lost(table, weights, chosen) > enough:  # then no other config helps
        assert lost(table, weights, [*CONFIGS, *start]) == pytest.approx(lost(table, weights, chosen))


def test_weights_decide_which_config_comes_first() -> None:
    table = {"s": {"a": 1.0, "b": 1.2}, "t": {"a": 1.2, "b": 1.0}}
    assert covered(table, {"s": 1.0, "t": 3.0}, loss=0.0, most=1) == ("b",)
    assert covered(table, {"s": 3.0, "t": 1.0}, loss=0.0, most=1) == ("a",)
    assert covered(table, {"s": 1.0, "t": 1.0}, loss=0.0, most=5) == ("a", "b")


def test_a_config_without_a_time_counts_as_slow_as_the_slowest() -> None:
    # "fails" is best in s alone; "slow" runs in both, in t slower than what is taken for a failure
    table = {"s": {"slow": 1.1, "fails": 1.0}, "t": {"slow": 20.0, "good": 1.0}}
    even = {"s": 1.0, "t": 1.0}
    assert covered(table, even, loss=0.0, most=9) == ("fails", "good")
    assert covered(table, even, start=("slow",), loss=0.0, most=2) == ("slow", "good")
    assert covered(table, even, start=("slow",), loss=0.5, most=9) == ("slow", "good")
    assert covered(table, {"s": 0.0, "t": 1.0}, start=("slow",), loss=4.0, most=9) == ("slow",)
    table = {"s": {"slow": 20.0, "fair": 5.0}, "t": {"slow": 1.5, "good": 1.0}}
    assert covered(table, even, start=("slow",), loss=0.0, most=2) == ("slow", "good")


def test_where_no_config_has_a_time_there_is_no_portfolio() -> None:
    assert covered({"s": {}, "t": {}}, {"s": 1.0, "t": 1.0}, loss=0.0, most=3) == ()
    assert covered({}, {}, start=("a",), loss=0.0, most=3) == ("a",)
    assert covered({"s": {}}, {"s": 1.0}, start=("a", "b"), loss=0.0, most=1) == ("a", "b")
