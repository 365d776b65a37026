"""What changed between two tables of a device, also if their columns have another order."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import CONFIGS, FEATURES, Cell, Row, planted, spec, time_rows
from treegen_diffs import BEST, NARROW, compared, of_device, project

from treegen.core.tree import Tree
from treegen.review.diff.table_change import TableChange

SHAPES: list[Row] = [(rows, columns, 2) for rows in (1, 8, 64) for columns in (1, 8, 64)]


def _change(folder: Path, old: dict[str, Any], new: dict[str, Any], tree: Tree = BEST) -> TableChange | None:
    before = project(folder / "old", shapes=old.pop("shapes", SHAPES), **old)
    after = project(folder / "new", tree, shapes=new.pop("shapes", SHAPES), **new)
    return of_device(compared(before, after)).table


def _times(factor: float = 1.0, medium: float = 1.0) -> Any:
    def of(row: Row) -> list[float]:
        narrow, middle, wide = planted(row)
        return [narrow * factor, middle * factor * medium, wide * factor]

    return of


def test_drift_of_all_cells(tmp_path: Path) -> None:
    found = _change(tmp_path, {}, {"times": _times(1.03)})
    assert found is not None and found.drift is not None
    drift = found.drift
    assert (drift.cells, found.common) == (27, 9)
    assert [drift.ratio, drift.low, drift.high] == pytest.approx([1.03] * 3)
    assert found.configs == {} and found.run == {} and found.spread == 1


def test_the_config_that_drifted_is_named_among_columns_in_another_order(tmp_path: Path) -> None:
    backwards = {"configs": tuple(reversed(CONFIGS)), "times": lambda row: _times(medium=1.5)(row)[::-1]}
    found = _change(tmp_path, {}, backwards)
    assert found is not None and found.drift is not None
    assert list(found.configs) == ["PLAIN_B64_W4"]
    assert found.configs["PLAIN_B64_W4"].ratio == pytest.approx(1.5)
    assert found.drift.ratio == pytest.approx(1.5 ** (1 / 3))


def test_scenarios_of_another_shape_under_the_same_id_are_not_common(tmp_path: Path) -> None:
    found = _change(tmp_path, {}, {"shapes": [(2, 1, 2), *SHAPES[1:], (512, 512, 2)]})
    assert found is not None
    assert (found.old_scenarios, found.new_scenarios, found.common) == (9, 10, 8)
    assert found.drift is not None and found.drift.cells == 24


def test_cells_that_fail_now_or_failed_before(tmp_path: Path) -> None:
    def failing(places: dict[tuple[int, int], Cell]) -> list[list[Cell]]:
        rows = time_rows(SHAPES)
        for (row, column), cell in places.items():
            for repeat in (0, len(SHAPES)):
                rows[row + repeat][2 + column] = cell
        return rows

    old, new = failing({(0, 1): "inf", (1, 1): ""}), failing({(2, 1): "inf", (3, 1): "inf", (1, 1): "inf"})
    found = _change(tmp_path, {"rows": old}, {"rows": new})
    assert found is not None and found.drift is not None
    assert (found.appeared, found.vanished, found.drift.cells) == (2, 1, 23)


def test_circumstances_that_differ(tmp_path: Path) -> None:
    device = {"name": "NVIDIA H100 PCIe", "arch": "sm_90"}
    found = _change(
        tmp_path, {"scenario_set": "a\nb"}, {"driver": "560.1", "date": "2026-02-01", "device": device}
    )
    assert found is not None and dict(found.run) == {
        "device": ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"),
        "driver": ("550.54", "560.1"),
        "scenario_set": ("a\\nb", "nothing"),
        "date": ("2026-01-31", "2026-02-01"),
    }


def test_spread_comes_from_both_tables_repeats(tmp_path: Path) -> None:
    """Repeats differ by 2%, which is a standard deviation of 1.4%.

    A median of two has 1%, and a ratio of two such medians 1.4%.
    """
    rows = time_rows(SHAPES)
    for row in rows[len(SHAPES) :]:
        row[2:] = [float(cell) * 1.02 for cell in row[2:]]
    found = _change(tmp_path, {"rows": rows}, {"rows": [[*row[:2], *reversed(row[2:])] for row in rows]})
    assert found is not None
    assert math.log(found.spread) == pytest.approx(math.log(1.02) / math.sqrt(2))


def test_tables_that_share_no_feature_share_no_scenario(tmp_path: Path) -> None:
    def only(name: str) -> dict[str, Any]:
        features = [name]
        kept = FEATURES.index(name)
        shapes: Any = [(row[kept],) for row in SHAPES]
        return {"features": features, "shapes": shapes, "times": lambda row: planted((row[0], 8, 2))}

    content = spec(constraints=[])
    before = project(tmp_path / "old", NARROW, content, **only("rows"))
    after = project(tmp_path / "new", NARROW, content, **only("columns"))
    found = of_device(compared(before, after)).table
    assert found is not None and (found.common, found.drift) == (0, None)
