"""Which two features a map is drawn over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from treegen_builders import Row, problem

from treegen.core.problem import Problem
from treegen.crossval.choices import Decisions
from treegen.review.report.log_axis import positions
from treegen.review.report.planes import planes

_CYCLE = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SHAPES: list[Row] = [
    (a, b, 1 + (3 * i + 5 * j) % 11) for i, a in enumerate(_CYCLE) for j, b in enumerate(_CYCLE)
]


def _problem(folder: Path, shapes: list[Row], **sections: Any) -> Problem:
    return problem(folder, {"constraints": [], **sections}, shapes=shapes)


def _launched(measured: Problem, one: str, other: str) -> Decisions:
    """What depends on two features alone."""
    big = measured.column(one) * measured.column(other) > np.median(
        measured.column(one) * measured.column(other)
    )
    return tuple(measured.configs[int(side)] for side in big)


@pytest.mark.parametrize("pair", [("rows", "columns"), ("rows", "heads"), ("columns", "heads")])
def test_the_features_that_the_choice_depends_on_are_the_axes(tmp_path: Path, pair: tuple[str, str]) -> None:
    measured = _problem(tmp_path, SHAPES)
    (plane,) = planes(measured, _launched(measured, *pair))
    assert (plane.title, plane.x, plane.y) == ("all shapes", *pair)
    assert plane.rows.tolist() == list(range(len(SHAPES)))


def test_each_regime_of_the_first_feature_has_a_plane_and_the_rest_one(tmp_path: Path) -> None:
    regimes = {"few": "heads <= 3", "many": "heads > 8", "flat": "rows <= 2"}
    measured = _problem(tmp_path, SHAPES, regimes=regimes)
    found = planes(measured, _launched(measured, "rows", "columns"))
    assert [(plane.title, plane.x, plane.y) for plane in found] == [
        ("few", "rows", "columns"),
        ("many", "rows", "columns"),
        ("other shapes", "rows", "columns"),
    ]
    heads = measured.column("heads")
    for plane, inside in zip(found, (heads <= 3, heads > 8, (heads > 3) & (heads <= 8)), strict=True):
        assert plane.rows.tolist() == np.flatnonzero(inside).tolist()


def test_regimes_that_fill_no_plane_share_one(tmp_path: Path) -> None:
    shapes = [(rows, columns, 2) for rows, columns, _ in SHAPES]
    measured = _problem(tmp_path, shapes, regimes={"flat": "rows <= 1", "tall": "rows > 1"})
    (plane,) = planes(measured, _launched(measured, "rows", "columns"))
    assert (plane.title, len(plane.rows)) == ("all shapes", len(shapes))


def test_a_table_in_which_one_feature_varies_has_no_plane(tmp_path: Path) -> None:
    measured = _problem(tmp_path, [(rows, 8, 2) for rows in _CYCLE])
    assert planes(measured, _launched(measured, "rows", "columns")) == ()


def test_axes_are_those_in_which_nearest_neighbours_most_often_agree(tmp_path: Path) -> None:
    random = np.random.RandomState(4)
    shapes = [
        tuple(row) for row in (2 ** random.randint(0, 9, (60, 3)) + random.randint(0, 40, (60, 3))).tolist()
    ]
    measured = _problem(tmp_path, shapes)
    launched = tuple(measured.configs[k] for k in random.randint(0, 3, len(measured.cost)))
    agreed = {}
    for one, other in (("rows", "columns"), ("rows", "heads"), ("columns", "heads")):
        points = np.rint(
            1000 * np.stack([positions(measured.column(one)), positions(measured.column(other))], axis=1)
        )
        agreed[one, other] = 0
        for i, point in enumerate(points):
            distance = [((point - p) ** 2).sum() if j != i else np.inf for j, p in enumerate(points)]
            agreed[one, other] += launched[int(np.argmin(distance))] == launched[i]
    (plane,) = planes(measured, launched)
    assert agreed[plane.x, plane.y] == max(agreed.values()) > min(agreed.values())
