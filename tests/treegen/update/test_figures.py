"""The figures of rows: right when a row is fitted, and the same as long as its configs and bounds stay."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from treegen_builders import DEVICE, KERNEL, planted, problem, spec, time_rows, write_spec, write_winners
from treegen_diffs import MEDIUM, NARROW, WIDE, Ask, Tree, heuristic

from treegen.core.heuristic import Heuristic, RowFigures
from treegen.core.problem import Problem
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec
from treegen.update.figures import with_figures

SHAPES = [(rows, columns, 2) for rows in (1, 8, 64, 512) for columns in (1, 8, 64, 512)]
THREE = Ask("area", 64, NARROW, Ask("area", 4096, WIDE, MEDIUM))
"""Rows of 6, 7 and 3 scenarios."""


def _measured(folder: Path, narrow: float = 1.0) -> Problem:
    """NARROW's times by a factor; second repeats take 2% longer where the area is above 4,096."""
    rows = time_rows(SHAPES, lambda shape: [planted(shape)[0] * narrow, *planted(shape)[1:]])
    for row, (r, c, _) in zip(rows[len(SHAPES) :], SHAPES, strict=True):
        row[2:] = [float(cell) * (1.02 if r * c > 4096 else 1) for cell in row[2:]]
    return problem(folder, {"constraints": []}, shapes=SHAPES, rows=rows)


def _figures(tree: Tree, made: Problem, previous: Heuristic | None = None) -> list[RowFigures | None]:
    (regime,) = with_figures(heuristic(tree), made, previous).regimes
    return [row.figures for row in regime.rows]


def test_figures_of_a_row_are_those_of_its_scenarios(tmp_path: Path) -> None:
    """Above 64 MEDIUM takes 25 us and WIDE 20. A median of two repeats deviates by 1 / sqrt(2) of one."""
    one = round(math.log(1.02) / math.sqrt(2) / 0.6745, 4)
    assert _figures(THREE, _measured(tmp_path)) == [
        *(RowFigures(6, 1.0, 1.0), RowFigures(7, 1.0, 1.0)),
        RowFigures(3, 1.25, 1.25, noise=one),
    ]
    mixed = _figures(Ask("rows", 1, MEDIUM, Ask("rows", 0, NARROW, WIDE)), _measured(tmp_path))
    assert mixed[0] is not None and mixed[0].slowdown == round(1.5 ** (3 / 4) * 1.25 ** (1 / 4), 4)
    assert mixed[0].percentile95 == 1.5 and mixed[1] == RowFigures(0)


def test_a_table_of_winners_gives_the_share_that_is_won(tmp_path: Path) -> None:
    write_winners(tmp_path / "tables/h100", shapes=SHAPES)
    read = read_spec(write_spec(tmp_path, spec(constraints=[])))
    made = build_problem(read.kernels[KERNEL], read.devices[DEVICE], read_table(tmp_path / "tables/h100"))
    assert _figures(THREE, made)[1:] == [RowFigures(7, won=1.0), RowFigures(3, won=0.0)]


@pytest.mark.parametrize(
    ("tree", "anew"),
    [
        (THREE, []),
        (Ask("area", 64, NARROW, Ask("area", 4096, NARROW, MEDIUM)), [1]),
        (Ask("area", 64, NARROW, Ask("area", 512, WIDE, MEDIUM)), [1, 2]),
        (Ask("area", 8, NARROW, Ask("area", 4096, WIDE, MEDIUM)), [0, 1, 2]),
    ],
)
def test_rows_keep_their_figures_where_configs_and_bounds_stay(
    tmp_path: Path, tree: Tree, anew: list[int]
) -> None:
    before = with_figures(heuristic(THREE), _measured(tmp_path), None)
    made = _measured(tmp_path, narrow=1.3)
    kept, new = _figures(tree, made, before), _figures(tree, made)
    old = [row.figures for row in before.regimes[0].rows]
    assert kept == [new[row] if row in anew else old[row] for row in range(3)]
    assert _figures(tree, made, heuristic(tree)) == new  # as after an older treegen
