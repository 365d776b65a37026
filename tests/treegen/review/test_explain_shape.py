"""Which shape `treegen explain` takes a user to mean, its way through the tree, and whether it was tuned."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import (
    DEVICE,
    FEATURES,
    KERNEL,
    REPOSITORY,
    Row,
    build,
    error_of,
    planted,
    problem,
    spec,
    write_project,
)
from treegen_strategies import examples

from treegen.core.errors import InputError
from treegen.core.problem import Problem
from treegen.core.tree import Leaf, Split, choose
from treegen.review.explain.completed_shape import complete
from treegen.review.explain.feature_space import feature_space
from treegen.review.explain.outside import Between, Beyond, Far, outside
from treegen.review.explain.tree_path import TRUSTED, trace
from treegen.review.explain.tuned_module import TunedModule, read_tuned_module
from treegen.review.modules import parse_features
from treegen.review.regions import holds


def test_integers_are_read_as_python_writes_them() -> None:
    found = parse_features(["a=4_096", "b=-1", "c=0", f"d={2**62 - 1}"])
    assert found == {"a": 4096, "b": -1, "c": 0, "d": 2**62 - 1}


TEXTS = ["4k", "1.5", "", "0x10", "1e3", "\uff14", "--1", "1__0", "_1", " 1", "1=2", "9" * 5000, str(2**62)]


@pytest.mark.parametrize("text", TEXTS, ids=[f"{text[:8]!r}" for text in TEXTS])
def test_a_value_that_is_no_integer_within_62_bits_is_refused(text: str) -> None:
    message = error_of(parse_features, [f"rows={text}"])
    assert message.startswith(f"rows={text[:20]}") and "must be an integer" in message and len(message) < 150


def test_words_of_values_are_read_and_named_in_a_refusal() -> None:
    values = {"dtype": {0: "bf16", 2: "fp16"}}
    assert parse_features(["dtype=fp16", "rows=4"], values) == {"dtype": 2, "rows": 4}
    message = error_of(parse_features, ["dtype=float16"], values)
    assert message == "dtype=float16: the value must be one of bf16, fp16"


@pytest.mark.parametrize("words", [["rows"], ["=1"], ["rows=1", "rows=1"]])
def test_words_that_name_no_feature_or_one_twice_are_refused(words: list[str]) -> None:
    assert "feature" in error_of(parse_features, words)


# Twenty values of rows and of columns, two of heads.
SHAPES: list[Row] = [(1 + r**2, 3 + c**2, h) for r in range(20) for c in range(20) for h in (2, 8)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    return problem(tmp_path_factory.mktemp("measured"), shapes=SHAPES)


@pytest.mark.parametrize(
    ("given_", "what"),
    [
        ({"row": 1}, "unknown feature; known: rows, columns, heads"),
        ({"area": 1}, "area=1: follows from rows * columns; give rows, columns instead"),
        ({"rows": 2**40, "columns": 2**40}, "area: rows * columns grows beyond 62 bits"),
        ({"shared_memory": 1}, "unknown feature"),
    ],
)
def test_features_that_may_not_be_given_are_refused(
    measured: Problem, given_: dict[str, int], what: str
) -> None:
    assert what in error_of(complete, given_, measured)


@examples(60)
@given(st.dictionaries(st.sampled_from(FEATURES), st.integers(-5, 500), min_size=1))
def test_what_is_not_given_comes_from_a_nearest_scenario(measured: Problem, known: dict[str, int]) -> None:
    shape = complete(known, measured)
    assert {name: shape.values[name] for name in known} == known
    assert shape.values["area"] == shape.values["rows"] * shape.values["columns"]
    assert set(shape.given) | set(shape.assumed) == set(FEATURES) and not set(shape.given) & set(
        shape.assumed
    )
    if len(known) == len(FEATURES):
        assert shape.source is None
        return
    names = [*known, "area"] if {"rows", "columns"} <= set(known) else list(known)
    logs = np.log2(np.maximum(1, np.stack([measured.column(name) for name in names], axis=1)))
    away = np.hypot.reduce(logs - [math.log2(max(1, shape.values[name])) for name in names], axis=1)
    assert shape.source is not None
    assert away[measured.scenarios.index(shape.source)] == pytest.approx(away.min(), abs=1e-5)
    row = measured.scenarios.index(shape.source)
    assert all(shape.values[name] == measured.column(name)[row] for name in shape.assumed)


def test_of_scenarios_as_near_the_middle_one_is_taken(measured: Problem) -> None:
    shape = complete({"heads": 2}, measured)
    assert 50 < shape.values["rows"] < 150 and 50 < shape.values["columns"] < 150


INVARIANTS = ["rows <= columns", "area <= 1000 * heads", "heads <= shared_memory"]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    shapes = [(rows, columns, heads) for rows, columns, heads in SHAPES if rows <= columns <= 1000 // rows]
    return problem(tmp_path_factory.mktemp("limited"), {"invariants": INVARIANTS}, shapes=shapes)


@pytest.mark.parametrize(("given_", "broken"), [
    ({"rows": 9, "columns": 8}, "rows <= columns"),
    ({"rows": 90, "columns": 95, "heads": 8}, "area <= 1000 * heads"),
    ({"heads": 300_000}, "heads <= shared_memory"),
])  # fmt: skip
def test_an_impossible_shape_is_refused(limited: Problem, given_: dict[str, int], broken: str) -> None:
    message = error_of(complete, given_, limited)
    shape = " ".join(f"{name}={value}" for name, value in given_.items())
    assert message == f"{shape}: no shape is like this, as it breaks the invariant {broken!r}"


@examples(60)
@given(st.dictionaries(st.sampled_from(FEATURES), st.integers(1, 400), min_size=1, max_size=2))
def test_a_shape_is_completed_to_a_possible_one(limited: Problem, known: dict[str, int]) -> None:
    try:
        values = complete(known, limited).values
    except InputError as error:
        message = str(error)
        assert "breaks the invariant" in message or "breaks an invariant with" in message
        return
    assert {name: values[name] for name in known} == known
    assert values["rows"] <= values["columns"] and values["area"] <= 1000 * values["heads"]


def test_scenarios_that_complete_a_shape_to_an_impossible_one_are_passed_over(limited: Problem) -> None:
    shape = complete({"rows": 5, "heads": 8}, limited)
    near = {"rows": 5, "columns": shape.values["columns"], "heads": 8}
    assert tuple(near.values()) in SHAPES and shape.values["columns"] >= 5
    assert "breaks an invariant with every scenario's other features" in error_of(
        complete, {"rows": 399}, limited
    )


@pytest.fixture(scope="module")
def mi300x() -> TunedModule:
    return read_tuned_module(REPOSITORY / "treegen.yaml", "unified_attention", "amd_mi300x")


def test_a_foreign_table_s_averages_follow_from_raw_features_or_are_given(mi300x: TunedModule) -> None:
    raw = {"num_seqs": 8, "num_query_tokens": 80, "num_kv_tokens": 16_384, "num_query_heads": 32}
    shape = complete({**raw, "num_kv_heads": 4, "max_query_len": 10, "max_seq_len": 2048}, mi300x.problem)
    values = shape.values
    assert (values["avg_query_len"], values["avg_seq_len"], values["queries_per_kv"]) == (10, 2048, 8)
    assert not {"avg_query_len", "avg_seq_len", "queries_per_kv"} & set(shape.assumed)
    assert {"num_seqs", "num_query_tokens", "num_kv_tokens", "num_kv_heads"} <= set(shape.not_in_table)
    averages = complete({"avg_query_len": 10, "avg_seq_len": 2048}, mi300x.problem)
    assert averages.given == ("avg_query_len", "avg_seq_len")
    message = error_of(complete, {**raw, "avg_query_len": 7}, mi300x.problem)
    assert message == "avg_query_len=7: num_query_tokens // max(1, num_seqs) is 10; give only one of them"


def test_features_that_the_table_does_not_hold_tell_nothing_about_the_others(mi300x: TunedModule) -> None:
    assert "holds none of the given features; give one of max_query_len" in error_of(
        complete, {"num_seqs": 8}, mi300x.problem
    )


def test_the_committed_module_of_a_foreign_table_is_explained_from_raw_features(mi300x: TunedModule) -> None:
    raw = dict(zip(mi300x.kernel.features, (8, 8, 16_384, 1, 2048, 32, 8, 128, 16, 2), strict=True))
    shape = complete(raw, mi300x.problem)
    assert shape.source is None
    assert trace(mi300x.module.tree, shape.values, mi300x.problem).config == choose(
        mi300x.module.tree, shape.values
    )


def test_a_tree_that_splits_on_an_unknown_feature_names_it(mi300x: TunedModule) -> None:
    shape = complete({"avg_seq_len": 300}, mi300x.problem)
    tree = Split("decode_programs", 5, Leaf(mi300x.kernel.fallback), mi300x.module.tree)
    message = error_of(trace, tree, shape.values, mi300x.problem)
    assert message.endswith("does not hold; give num_seqs, num_kv_heads")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> TunedModule:
    """Heads are trusted as measured (2 to 24), and block >= heads guards the leaf of narrow."""
    shapes: list[Row] = [(r, c, h) for r in (1, 8, 64) for c in (1, 8, 64) for h in (2, 24)]

    def times(row: Row) -> list[float]:
        return planted(row) if row[2] == 2 else [90.0, 25.0, 20.0]

    sections = spec(trusted_as_measured=["heads"])
    path = write_project(tmp_path_factory.mktemp("guarded"), sections, shapes=shapes, times=times)
    assert build(path) == 0
    return read_tuned_module(path, KERNEL, DEVICE)


@examples(100)
@given(st.fixed_dictionaries(dict.fromkeys(FEATURES, st.integers(-2, 200))))
def test_the_path_is_the_tree_s_and_guards_are_what_no_scenario_passes(
    tuned: TunedModule, known: dict[str, int]
) -> None:
    values = complete(known, tuned.problem).values
    found = trace(tuned.module.tree, values, tuned.problem)
    assert found.config == choose(tuned.module.tree, values)
    assert holds(found.region, values)
    tree = tuned.module.tree
    rows = np.arange(len(tuned.times))
    for step in found.steps:
        assert isinstance(tree, Split) and (tree.feature, tree.threshold) == (step.feature, step.threshold)
        assert step.answer == (values[step.feature] <= step.threshold)
        low = tuned.problem.column(tree.feature)[rows] <= tree.threshold
        other_sides = [(tree.low, low.sum()), (tree.high, (~low).sum())]
        empty = any(side == Leaf(tuned.kernel.fallback) and not count for side, count in other_sides)
        assert (step.guards is not None) == empty
        rows = rows[low == step.answer]
        tree = tree.low if step.answer else tree.high
    assert found.fell == (found.steps[-1].guards is not None and len(rows) == 0)


def test_guards_say_what_they_stand_for(tuned: TunedModule, tmp_path: Path) -> None:
    values = complete({"rows": 1, "columns": 1, "heads": 2}, tuned.problem).values
    steps = trace(tuned.module.tree, values, tuned.problem).steps
    assert {("heads", 1, (TRUSTED,)), ("heads", 24, (TRUSTED,)), ("heads", 8, None)} <= {
        (step.feature, step.threshold, step.guards) for step in steps
    }
    path = write_project(tmp_path)
    assert build(path) == 0
    plain = read_tuned_module(path, KERNEL, DEVICE)
    for heads, fell in ((16, False), (17, True)):
        values = complete({"rows": 1, "columns": 1, "heads": heads}, plain.problem).values
        first = trace(plain.module.tree, values, plain.problem).steps[0]
        assert (first.feature, first.threshold, first.guards) == ("heads", 16, ("block >= heads",))
        assert first.fell == fell


def _outside(measured: Problem, row: Row) -> list[object]:
    space = feature_space(measured)
    values = complete(dict(zip(FEATURES, row, strict=True)), measured).values
    return list(outside(values, measured, float(space.distances(space.at(values)).min()), space.usual()))


def test_a_measured_shape_and_one_between_sizes_lie_inside(measured: Problem) -> None:
    assert _outside(measured, (101, 103, 2)) == []
    assert _outside(measured, (100, 99, 2)) == []


def test_values_beyond_and_between_the_measured_ones_are_named(measured: Problem) -> None:
    assert _outside(measured, (101, 103, 3))[0] == Between("heads", 3, 2, 8)
    assert _outside(measured, (101, 103, 1))[0] == Beyond("heads", 1, 2, 8)
    found = _outside(measured, (363, 364, 2))
    assert found == [Beyond("rows", 363, 1, 362), Beyond("area", 363 * 364, 3, 362 * 364)]


def test_far_is_farther_than_nearly_all_scenarios_are_from_their_nearest_other(measured: Problem) -> None:
    space = feature_space(measured)
    points = space.points.tolist()
    nearest = sorted(min(math.dist(one, other) for other in points if other != one) for one in points)
    usual = nearest[math.ceil(0.99 * len(nearest)) - 1]
    assert space.usual() == pytest.approx(usual, abs=1e-6)
    for rows in (400, 500, 700, 1000, 4000):
        here = [math.log2(value) for value in (rows, 103, 2, 103 * rows)]
        away = min(math.dist(here, one) for one in points)
        far = [reason for reason in _outside(measured, (rows, 103, 2)) if isinstance(reason, Far)]
        assert [reason.distance for reason in far] == pytest.approx([away] if away > usual else [], abs=1e-5)
    assert far


def test_a_single_scenario_has_no_usual_distance(tmp_path: Path) -> None:
    assert feature_space(problem(tmp_path, shapes=[(1, 1, 2)])).usual() is None
