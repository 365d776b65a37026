"""Distances between scenarios, and the spread of those that are swept first."""

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tuning_builders import features

from triton_tune.core.problem import SearchProblem
from triton_tune.search.neighbours import Distances

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
).map(lambda rows: SearchProblem({f"s{i}": row for i, row in enumerate(rows)}, {}, {}, {}))


def radius(distances: Distances, names: Sequence[str], centers: Sequence[str]) -> float:
    """The farthest that a scenario is from its nearest center."""
    return max(min(distances.between(name, center) for center in centers) for name in names)


@quiet
@given(scenarios)
def test_distances_are_a_metric_in_any_order(problem: SearchProblem) -> None:
    names = problem.scenarios
    there, back = Distances(problem), Distances(problem)
    for one in names:
        assert there.between(one, one) == 0.0
        for other in names:
            assert there.between(one, other) == back.between(other, one) == there.between(other, one)
            for third in names:
                way = there.between(one, third) + there.between(third, other)
                assert there.between(one, other) <= way + 1e-9


@pytest.mark.parametrize("change", [
    {"num_seqs": 8}, {"num_query_tokens": 9}, {"num_kv_tokens": 8}, {"max_query_len": 8}, {"max_seq_len": 8},
    {"num_query_heads": 16}, {"num_kv_heads": 4}, {"head_size": 64}, {"block_size": 32},
    {"kv_element_size": 1},
])  # fmt: skip
def test_every_feature_sets_scenarios_apart(change: dict[str, int]) -> None:
    usual = features(4, 2, 1024)
    rows = {"a": usual, "b": usual | change, "c": usual}
    distances = Distances(SearchProblem(rows, {}, {}, {}))
    assert distances.between("a", "b") > 0.0 == distances.between("a", "c")


def test_factors_count_not_differences() -> None:
    rows = {name: features(count, 1, 1024) for name, count in (("a", 1), ("b", 4), ("c", 16), ("d", 19))}
    distances = Distances(SearchProblem(rows, {}, {}, {}))
    assert distances.between("a", "b") == pytest.approx(distances.between("b", "c"))
    assert distances.between("c", "d") < distances.between("a", "b")
    some = ["c", "a"]
    found = distances.matrix(some, ["d", "b", "c"])
    assert found.tolist() == [[distances.between(s, other) for other in ("d", "b", "c")] for s in some]


@quiet
@given(scenarios, st.integers(0, 8), st.integers(0, 2))
def test_farthest_first_spreads_as_k_centers_do(problem: SearchProblem, count: int, num_known: int) -> None:
    names = problem.scenarios
    known, distances = names[:num_known], Distances(problem)
    chosen = distances.farthest_first(names, count, known)
    assert chosen == Distances(problem).farthest_first(names, count, known)
    assert len(chosen) == len(set(chosen)) == min(count, len(names) - len(known))
    assert not set(chosen) & set(known)
    for shorter in range(count):  # a longer choice begins with the shorter ones
        assert chosen[:shorter] == distances.farthest_first(names, shorter, known)
    if not chosen:
        return
    others = [name for name in names if name not in known]
    best = min(radius(distances, names, (*known, *centers)) for centers in combinations(others, len(chosen)))
    assert radius(distances, names, (*known, *chosen)) <= 2 * best + 1e-9
    # Each is the farthest from those before it: they come nearer and nearer.
    before = [(*known, *chosen[:index]) for index in range(len(chosen))]
    gaps = [radius(distances, [c], b) for c, b in zip(chosen, before, strict=True) if b]
    assert all(earlier >= later - 1e-9 for earlier, later in pairwise(gaps))


def test_the_first_without_anything_known_is_in_the_middle() -> None:
    rows = {f"s{size}": features(2**size, 1, 1024) for size in range(7)}
    distances = Distances(SearchProblem(rows, {}, {}, {}))
    assert distances.farthest_first(list(rows), 1) == ["s3"]
    assert set(distances.farthest_first(list(rows), 3)) == {"s0", "s3", "s6"}
    assert distances.farthest_first(list(rows), 1, ["s0"]) == ["s6"]
    assert distances.farthest_first([], 3) == distances.farthest_first(["s0"], 3, ["s0"]) == []
