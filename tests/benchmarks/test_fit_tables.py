"""benchmarks.fit: ways and candidates are judged on the same folds of scenarios and of groups."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import SIDES, write_project

from benchmarks.fit import candidates, tables
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


def test_more_candidates_are_never_slower_and_one_is_what_the_fit_chooses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = [(rows, columns, heads) for rows in SIDES for columns in SIDES for heads in (2, 4)]
    path = str(write_project(tmp_path, shapes=shapes))
    candidates.main([path])
    _, *lines = capsys.readouterr().out.splitlines()
    tables.main([path])
    held_out = capsys.readouterr().out.splitlines()[1].split()[3].rstrip("%")
    assert [line.split()[2] for line in lines] == ["scenarios", "groups"]
    for line in lines:
        figures = [float(figure) for figure in line.split()[3:]]
        assert figures == sorted(figures, reverse=True) and figures[-1] >= 1
    assert float(lines[0].split()[3]) == pytest.approx(1 + float(held_out) / 100, abs=1e-3)
