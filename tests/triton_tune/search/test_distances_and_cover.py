"""How alike scenarios are, the spread of those that are swept first, and the portfolio as a greedy cover."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_builders import features

from triton_tune.core.problem import SearchProblem
from triton_tune.search.neighbours import Distances
from triton_tune.search.race import ABSENT, cover

quiet = settings(max_examples=60, deadline=None, derandomize=True, database=None)
scenarios = st.lists(
    st.builds(
        features,
        st.integers(1, 256),
        st.integers(1, 4096),
        st.integers(1, 1 << 17),
        st.sampled_from([(32, 8), (8, 1), (32, 32)]),
        st.sampled_from([1, 2]),
    ),
    min_size=1,
    max_size=7,
).map(lambda rows: SearchProblem({f"s{i}": row for i, row in enumerate(rows)}, {}, {}))


def gaps(distances: Distances, names: Sequence[str], centers: Sequence[str]) -> float:
    """The distances of all scenarios to the nearest center, summed."""
    return float(distances.matrix(names, centers).min(axis=1).sum())


def test_factors_count_not_differences() -> None:
    rows = {name: features(count, 1, 1024) for name, count in (("a", 1), ("b", 4), ("c", 16), ("d", 19))}
    from_b, from_c = Distances(SearchProblem(rows, {}, {})).matrix(["b", "c"], ["a", "c", "d"])
    assert from_b[0] == pytest.approx(from_b[1]) and from_c[2] < from_b[0]


@quiet
@given(scenarios, st.integers(0, 8), st.integers(0, 2))
def test_representatives_are_near_all_and_more_of_them_begin_with_the_same(
    problem: SearchProblem, count: int, num_known: int
) -> None:
    names = problem.scenarios
    known, distances = names[:num_known], Distances(problem)
    chosen = distances.representatives(names, count, known)
    assert len(chosen) == len(set(chosen)) == min(count, len(names) - len(known))
    assert not set(chosen) & set(known)
    others = [name for name in names if name not in known]
    for shorter, name in enumerate(chosen):  # each is the best one to add
        assert chosen[:shorter] == distances.representatives(names, shorter, known)
        before = [*known, *chosen[:shorter]]
        best = min(gaps(distances, others, [*before, other]) for other in others)
        assert not before or gaps(distances, others, [*before, name]) == pytest.approx(best, abs=1e-9)


CONFIGS = "abcdefg"
rows = st.dictionaries(st.sampled_from(CONFIGS), st.floats(1.0, 8.0), max_size=7)
tables = st.dictionaries(st.sampled_from(["s", "t", "u", "v", "w"]), rows, max_size=5)
weightings = st.lists(st.floats(0.0, 5.0), min_size=5, max_size=5)
starts = st.lists(st.sampled_from([*CONFIGS, "unknown"]), unique=True, max_size=2).map(tuple)
Table = Mapping[str, Mapping[str, float]]


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
