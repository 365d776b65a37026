"""What changed between two tables of a device, also if their columns have another order."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from treegen_builders import CONFIGS, DEVICE, FEATURES, Cell, Row, error_of, planted, spec, time_rows
from treegen_diffs import BEST, MEDIUM, NARROW, compared, of_device, project

from treegen.core.tree import Split, Tree
from treegen.review.diff.price import Verdict
from treegen.review.diff.table_change import TableChange
from treegen.review.diff.wording import contradiction, regressions, summary, table_lines, table_title

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
    assert table_title(found).endswith(
        "run.yaml tells of the same run: it went on, or somebody edited the table."
    )


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


def test_cells_that_only_one_table_measured(tmp_path: Path) -> None:
    def without(*numbers: int) -> list[list[Cell]]:
        rows = time_rows(SHAPES)
        for number in numbers:
            rows[number][3] = rows[number + len(SHAPES)][3] = ""
        return rows

    found = _change(tmp_path, {"rows": without(1)}, {"rows": without(2, 3)})
    assert found is not None and (found.lost, found.gained) == (2, 1)
    assert table_lines(found)[-1] == "2 cells that had a time are not measured now; 1 are new."


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
    assert found is not None and found.spread is not None
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


# Which table judges


WORSE = Split("area", 64, NARROW, MEDIUM)
"""It launches MEDIUM where WIDE is best by `planted`."""


def _slow_wide(row: Row) -> list[float]:
    narrow, medium, wide = planted(row)
    return [narrow, medium, 10 * wide]


@pytest.mark.parametrize("key", ["driver", "torch", "triton", "source_hash"])
def test_the_old_table_informs_where_the_software_changed(tmp_path: Path, key: str) -> None:
    """By the old table MEDIUM is slower than WIDE, by the new one faster: a correct tree after a change."""
    before = project(tmp_path / "old", shapes=SHAPES)
    after = project(tmp_path / "new", WORSE, shapes=SHAPES, times=_slow_wide, **{key: "another"})
    diff = compared(before, after)
    found = of_device(diff)
    assert [price.verdict for price in found.overall] == [Verdict.FASTER, Verdict.SLOWER]
    assert found.judges == ("by the new table",) and not diff.regresses
    assert found.note is not None and found.note.endswith("changed, so the old table only informs")
    assert "Nothing regresses" in summary(diff) and "contradict" not in summary(diff)
    assert regressions(found) == [] and contradiction(found) == ""


def test_the_old_table_judges_where_nothing_changed(tmp_path: Path) -> None:
    before = project(tmp_path / "old", shapes=SHAPES)
    after = project(tmp_path / "new", WORSE, shapes=SHAPES, times=_slow_wide, date="2026-02-01")
    diff = compared(before, after)
    assert diff.regresses and of_device(diff).judges == ("by the new table", "by the old table")
    assert "The tables contradict each other about scale on nvidia_h100" in summary(diff)
    assert "regresses" not in summary(diff), "by the new table it is faster"


def test_a_change_that_both_tables_find_slower_regresses_after_new_software_too(tmp_path: Path) -> None:
    before = project(tmp_path / "old", shapes=SHAPES)
    after = project(tmp_path / "new", WORSE, shapes=SHAPES, driver="another")
    diff = compared(before, after)
    assert diff.regresses and "scale on nvidia_h100 regresses" in summary(diff)


@pytest.mark.parametrize("factor", [1e-3, 0.09, 11, 1e6])
def test_times_in_another_unit_are_refused_unless_they_are_meant(tmp_path: Path, factor: float) -> None:
    before = project(tmp_path / "old", shapes=SHAPES)
    after = project(
        tmp_path / "new", shapes=SHAPES, times=lambda row: [float(f"{t:.5g}") for t in _times(factor)(row)]
    )
    line = error_of(lambda: compared(before, after))
    assert "those of the old table; tables hold microseconds" in line and "--expect-jump" in line
    assert not compared(before, after, expect_jump=True).regresses


def test_a_tenth_of_the_cells_may_jump(tmp_path: Path) -> None:
    before = project(tmp_path / "old", shapes=SHAPES)
    rows = time_rows(SHAPES, _times(20))
    for row in rows:
        row[2:] = row[2:] if row[0] != "s001" else [float(cell) / 20 for cell in row[2:]]
    after = project(tmp_path / "new", shapes=SHAPES, rows=rows)
    assert of_device(compared(before, after)).table is not None


def test_a_table_of_another_gpu_is_refused_unless_the_spec_states_it(tmp_path: Path) -> None:
    """The new one with an error; an old one prices nothing."""
    name = {"name": "NVIDIA B200"}
    plain = project(tmp_path / "plain", shapes=SHAPES)
    other = project(tmp_path / "other", shapes=SHAPES, device=name)
    line = error_of(lambda: compared(plain, other))
    assert "was measured on 'NVIDIA B200', which is no name of nvidia_h100" in line
    note = of_device(compared(other, plain)).note
    assert note is not None and note.startswith("the old table cannot price this change:")
    content = spec(tables={DEVICE: {"folder": "tables/h100", "measured_on": "NVIDIA B200"}})
    stated = project(tmp_path / "stated", BEST, content, shapes=SHAPES, device=name)
    assert of_device(compared(plain, stated)).table is not None
