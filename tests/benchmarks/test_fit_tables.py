"""benchmarks.fit.tables: every way is judged on the same folds of scenarios and of groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import SIDES, write_project

from benchmarks.fit import tables
from benchmarks.fit.tables import WAYS


def test_every_way_is_judged_on_scenarios_and_on_groups(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = [(rows, columns, heads) for rows in SIDES for columns in SIDES for heads in (2, 4)]
    path = write_project(tmp_path, shapes=shapes)
    tables.main([str(path), f"{path}:{tmp_path / 'tables/h100'}"])
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["scale nvidia_h100"] * 6 + ["scale h100"] * 6
    assert all(name in line for name, line in zip([*WAYS] * 2, lines, strict=True))
    assert {line.count("+-") for line in lines} == {
        4
    }  # held out and over treegen, by scenarios and by groups
    assert all("+0.00% +-0.00%" in lines[place] for place in (0, 6))  # treegen beside itself
