"""feature_intervals: it holds every value, and of few points nothing else."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from treegen_builders import device_and_kernel

from treegen.core import expr
from treegen.core.interval import feature_intervals, is_empty

DERIVED = {
    "area": "rows * columns",
    "rest": "rows - rows // 8 * 8",
    "slots": "2 * (area // 16) + 1 - min(1, rest)",
    "all_rows": "rows * max(1, heads)",
}


@pytest.mark.parametrize("rows", [(0, 7), (3, 20), (8, 8), (16, 31)])
@pytest.mark.parametrize("columns", [(1, 2), (4, 4)])
def test_derived_features_of_few_points_are_exact(
    tmp_path: Path, rows: tuple[int, int], columns: tuple[int, int]
) -> None:
    _, kernel = device_and_kernel(tmp_path, derived=DERIVED, constraints=[])
    found = feature_intervals({"rows": rows, "columns": columns, "heads": (1, 1000)}, kernel, {})
    points = product(range(rows[0], rows[1] + 1), range(columns[0], columns[1] + 1))
    values: dict[str, list[int]] = {name: [] for name in ("area", "rest", "slots")}
    for row, column in points:
        point = {"rows": row, "columns": column}
        for name in values:
            point[name] = expr.evaluate(kernel.derived[name], point)
            values[name].append(point[name])
    assert {name: found[name] for name in values} == {n: (min(v), max(v)) for n, v in values.items()}
    assert found["all_rows"] == (rows[0], rows[1] * 1000)  # too many points: enclosed


def test_a_region_that_holds_no_shape(tmp_path: Path) -> None:
    _, kernel = device_and_kernel(tmp_path, derived=DERIVED, constraints=[])
    found = feature_intervals({"rows": (0, 7), "columns": (1, 2), "area": (15, None)}, kernel, {})
    assert is_empty(found["area"]) and found["rows"] == (0, 7)
