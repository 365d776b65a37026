"""Which shape `treegen explain` takes a user to mean, and whether it was tuned."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from treegen_builders import FEATURES, error_of, problem
from treegen_strategies import examples

from treegen.review.explain import FeatureSpace, complete, outside, parse_features

TEXTS = ["4k", "1.5", "", "0x10", "1e3", "\uff14", "--1", "1__0", "_1", " 1", "1=2", "9" * 5000, str(2**62)]


def test_integers_are_read_as_python_writes_them_and_words_as_the_spec_does():
    found = parse_features(["a=4_096", "b=-1", "c=0", f"d={2**62 - 1}"], {})
    assert found == {"a": 4096, "b": -1, "c": 0, "d": 2**62 - 1}
    values = {"dtype": {0: "bf16", 2: "fp16"}}
    assert parse_features(["dtype=fp16", "rows=4"], values) == {"dtype": 2, "rows": 4}
    assert error_of(parse_features, ["dtype=float16"], values).startswith("dtype=float16")
    for text in TEXTS:
        message = error_of(parse_features, [f"rows={text}"], {})
        assert message.startswith(f"rows={text[:20]}") and len(message) < 150
    for words in (["rows"], ["=1"], ["rows=1", "rows=1"]):
        assert error_of(parse_features, words, {})


# Twenty values of rows and of columns, two of heads.
SHAPES = [(1 + r**2, 3 + c**2, h) for r in range(20) for c in range(20) for h in (2, 8)]


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    return problem(tmp_path_factory.mktemp("measured"), shapes=SHAPES)


@examples(60)
@example({"heads": 2})
@given(st.dictionaries(st.sampled_from(FEATURES), st.integers(0, 500), min_size=1))
def test_what_is_not_given_comes_from_a_nearest_scenario(measured, known):
    shape = complete(known, measured)
    assert {name: shape.values[name] for name in known} == known
    assert shape.values["area"] == shape.values["rows"] * shape.values["columns"]
    assert set(shape.assumed) == set(FEATURES) - set(known)
    if len(known) == len(FEATURES):
        assert shape.source is None
        return
    if known == {"heads": 2}:  # of scenarios that are as near, the middle one
        assert 50 < shape.values["rows"] < 150 and 50 < shape.values["columns"] < 150
    names = [*known, "area"] if {"rows", "columns"} <= set(known) else list(known)
    logs = np.log2(np.maximum(0.5, np.stack([measured.column(name) for name in names], axis=1)))
    away = np.hypot.reduce(logs - [math.log2(max(0.5, shape.values[name])) for name in names], axis=1)
    row = measured.scenarios.index(shape.source)
    assert away[row] == pytest.approx(away.min(), abs=1e-5)
    assert all(shape.values[name] == measured.column(name)[row] for name in shape.assumed)


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    shapes = [(rows, columns, heads) for rows, columns, heads in SHAPES if rows <= columns <= 1000 // rows]
    invariants = ["rows <= columns", "area <= 1000 * heads", "heads <= shared_memory"]
    return problem(tmp_path_factory.mktemp("limited"), {"invariants": invariants}, shapes=shapes)


def test_shapes_that_nobody_can_mean_are_refused(measured, limited):
    for of, shape, named in (
        (measured, {"row": 1}, "row"),
        (measured, {"area": 1}, "rows, columns"),
        (measured, {"rows": 2**40, "columns": 2**40}, "area"),
        (measured, {"shared_memory": 1}, "shared_memory"),
        (limited, {"rows": 9, "columns": 8}, "rows=9 columns=8: no shape is like this, as it breaks"),
        (limited, {"rows": 90, "columns": 95, "heads": 8}, "area <= 1000 * heads"),
        (limited, {"heads": 300_000}, "heads <= shared_memory"),
        (limited, {"rows": 399}, "rows <= columns"),
    ):
        assert named in error_of(complete, shape, of)


def test_what_lies_outside_the_tuned_shapes(measured, tmp_path):
    """Values beyond and between the measured ones, and what is farther than nearly all have another."""
    space = FeatureSpace(measured)

    def said(*row):
        return outside(complete(dict(zip(FEATURES, row, strict=True)), measured).values, measured, space)

    assert said(101, 103, 2) == said(100, 99, 2) == ()
    assert said(101, 103, 3)[0].startswith("heads 3: the table measured 2 and 8")
    assert said(101, 103, 1)[0].startswith("heads 1: the table measured 2 to 8")
    rows, area = said(363, 364, 2)
    assert rows.startswith("rows 363: the table measured 1 to 362") and area.startswith("area 132,132")
    points = space.points.tolist()
    nearest = sorted(min(math.dist(one, other) for other in points if other != one) for one in points)
    assert space.usual() == pytest.approx(nearest[math.ceil(0.99 * len(nearest)) - 1], abs=1e-6)
    far = False
    for size in (400, 500, 700, 1000, 4000):
        here = [math.log2(value) for value in (size, 103, 2, 103 * size)]
        far = min(math.dist(here, one) for one in points) > space.usual()
        assert any("doublings away" in line for line in said(size, 103, 2)) == far
    assert far
    assert FeatureSpace(problem(tmp_path, shapes=[(1, 1, 2)])).usual() == 0
