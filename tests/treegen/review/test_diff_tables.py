"""What changed between two tables of a device, and which of them judges a change."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import CONFIGS, DEVICE, Cell, Row, error_of, planted, spec, time_rows
from treegen_diffs import BEST, MEDIUM, NARROW, Ask, compared, of_device, project

from treegen.review.diff.markdown import markdown
from treegen.review.diff.prices import Verdict
from treegen.review.diff.tables import TableChange

SHAPES: list[Row] = [(rows, columns, 2) for rows in (1, 8, 64) for columns in (1, 8, 64)]
WORSE = Ask("area", 64, NARROW, MEDIUM)
"""It launches MEDIUM where WIDE is best by `planted`."""


def _change(folder: Path, old: dict[str, Any], new: dict[str, Any]) -> TableChange:
    before = project(folder / "old", **{"shapes": SHAPES, **old})
    after = project(folder / "new", **{"shapes": SHAPES, **new})
    change = of_device(compared(before, after)).table
    assert change is not None
    return change


def _times(narrow: float = 1.0, medium: float = 1.0, wide: float = 1.0) -> Any:
    """The planted times of each config by a factor."""
    factors = (narrow, medium, wide)
    return lambda row: [time * factor for time, factor in zip(planted(row), factors, strict=True)]


def _rows(cells: dict[tuple[int, int], Cell]) -> list[list[Cell]]:
    """The rows of times.csv, with other cells at (scenario, config) in both repeats."""
    rows = time_rows(SHAPES)
    for (row, column), cell in cells.items():
        for repeat in (0, len(SHAPES)):
            rows[row + repeat][2 + column] = cell
    return rows


def test_drift_of_all_cells(tmp_path: Path) -> None:
    found = _change(tmp_path, {}, {"times": _times(1.03, 1.03, 1.03)})
    assert found.drift is not None and (found.drift.cells, found.common) == (27, 9)
    assert [found.drift.ratio, found.drift.low, found.drift.high] == pytest.approx([1.03] * 3)
    assert found.configs == {} and found.run == {} and found.spread == 1


def test_the_config_that_drifted_is_named_among_columns_in_another_order(tmp_path: Path) -> None:
    backwards = {"configs": tuple(reversed(CONFIGS)), "times": lambda row: _times(medium=1.5)(row)[::-1]}
    found = _change(tmp_path, {}, backwards)
    assert list(found.configs) == ["PLAIN_B64_W4"]
    assert found.configs["PLAIN_B64_W4"].ratio == pytest.approx(1.5)
    assert found.drift is not None and found.drift.ratio == pytest.approx(1.5 ** (1 / 3))


def test_scenarios_of_another_shape_under_the_same_id_are_not_common(tmp_path: Path) -> None:
    found = _change(tmp_path, {}, {"shapes": [(2, 1, 2), *SHAPES[1:], (512, 512, 2)]})
    assert (found.scenarios, found.common) == ((9, 10), 8)
    assert found.drift is not None and found.drift.cells == 24


def test_cells_that_only_one_table_measured_or_that_failed_in_one(tmp_path: Path) -> None:
    old = _rows({(0, 1): "inf", (1, 1): "", (4, 1): "inf"})
    new = _rows({(2, 1): "inf", (3, 1): "inf", (4, 1): "inf", (5, 1): "", (6, 0): ""})
    found = _change(tmp_path, {"rows": old}, {"rows": new})
    assert (found.lost, found.gained, found.appeared, found.vanished) == (2, 1, 2, 1)
    assert found.drift is not None and found.drift.cells == 20


def test_circumstances_that_differ(tmp_path: Path) -> None:
    device = {"name": "NVIDIA H100 PCIe", "arch": "sm_90"}
    new = {"driver": "560.1", "date": "2026-02-01", "device": device}
    assert dict(_change(tmp_path, {"scenario_set": "a\nb"}, new).run) == {
        "device": ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"),
        "driver": ("550.54", "560.1"),
        "scenario_set": ("a\\nb", "nothing"),
        "date": ("2026-01-31", "2026-02-01"),
    }


def test_spread_comes_from_both_tables_repeats(tmp_path: Path) -> None:
    """Repeats differ by 2%: a deviation of 1.4% of a time, 1% of a median, 1.4% of a ratio of two medians."""
    rows = time_rows(SHAPES)
    for row in rows[len(SHAPES) :]:
        row[2:] = [float(cell) * 1.02 for cell in row[2:]]
    found = _change(tmp_path, {"rows": rows}, {"rows": [[*row[:2], *reversed(row[2:])] for row in rows]})
    assert found.spread is not None
    assert math.log(found.spread) == pytest.approx(math.log(1.02) / math.sqrt(2))


# Which table judges


@pytest.mark.parametrize("key", ["driver", "torch", "triton", "source_hash"])
def test_the_old_table_only_informs_where_the_software_changed(tmp_path: Path, key: str) -> None:
    """By the old table MEDIUM is slower than WIDE, by the new one faster: a correct tree after a change."""
    before = project(tmp_path / "old", shapes=SHAPES)
    times = _times(medium=0.8, wide=10)
    after = project(tmp_path / "new", WORSE, shapes=SHAPES, times=times, **{key: "another"})
    diff = compared(before, after)
    found = of_device(diff)
    assert [(p.verdict, p.judges) for p in found.overall] == [(Verdict.FASTER, True), (Verdict.SLOWER, False)]
    assert found.note is not None and not found.contradicted and not diff.regresses
    headline = markdown(diff).split("####")[0]
    assert "by the new table" in headline and "by the old table" not in headline


def test_two_tables_of_the_same_software_may_contradict_each_other(tmp_path: Path) -> None:
    before = project(tmp_path / "old", shapes=SHAPES)
    after = project(tmp_path / "new", WORSE, shapes=SHAPES, times=_times(wide=10), date="2026-02-01")
    diff = compared(before, after)
    found = of_device(diff)
    assert [(p.verdict, p.judges) for p in found.overall] == [(Verdict.FASTER, True), (Verdict.SLOWER, True)]
    assert found.contradicted and diff.regresses


def test_a_table_that_one_side_lacks_is_told_though_both_modules_are_the_same(tmp_path: Path) -> None:
    old, new = project(tmp_path / "old", shapes=SHAPES), project(tmp_path / "new", shapes=SHAPES)
    next(old.rglob("times.csv")).unlink()
    change = of_device(compared(old, new))
    assert change.same and change.note is not None and "times.csv" in change.note
    assert "times.csv" in error_of(lambda: compared(new, old))


def test_a_table_of_another_gpu_is_refused_unless_the_spec_states_it(tmp_path: Path) -> None:
    """The new one with an error; an old one prices nothing."""
    name = {"name": "NVIDIA B200"}
    plain = project(tmp_path / "plain", shapes=SHAPES)
    other = project(tmp_path / "other", WORSE, shapes=SHAPES, device=name)
    assert "NVIDIA B200" in error_of(lambda: compared(plain, other))
    found = of_device(compared(other, plain))
    assert found.note is not None and [price.table for price in found.overall] == ["by the table"]
    content = spec(tables={DEVICE: {"folder": "tables/h100", "measured_on": "NVIDIA B200"}})
    stated = project(tmp_path / "stated", BEST, content, shapes=SHAPES, device=name)
    assert of_device(compared(plain, stated)).table is not None
