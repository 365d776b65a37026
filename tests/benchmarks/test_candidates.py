"""benchmarks.fit.candidates judges a module's first few choices on what its fit has not seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import SIDES, write_project

from benchmarks.fit import candidates
from treegen.build import read_problems
from treegen.crossval.folds import cross_validate
from treegen.fit.fit import fit
from treegen.read.spec import read_spec


def test_more_candidates_are_never_slower_and_one_is_what_the_fit_chooses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = [(rows, columns, heads) for rows in SIDES for columns in SIDES for heads in (2, 4)]
    path = write_project(tmp_path, shapes=shapes)
    candidates.main([str(path)])
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["scenarios", "groups"]
    for line in lines:
        figures = [float(figure) for figure in line.split()[3:]]
        assert figures == sorted(figures, reverse=True) and figures[-1] >= 1
    (problem,) = read_problems(read_spec(path))
    found = cross_validate(problem, fit)
    assert found is not None
    assert float(lines[0].split()[3]) == pytest.approx(found.folds.quality.slowdown, abs=1e-3)
