"""benchmarks.fit judges modules of runs that ended early, and a module's first few choices."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from treegen_builders import SIDES, write_project

from benchmarks.fit import budgets, candidates
from treegen.build import read_problems
from treegen.crossval.folds import cross_validate
from treegen.fit.fit import fit
from treegen.read.spec import read_spec
from tuning_table import read_run


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return write_project(tmp_path, shapes=list(itertools.product(SIDES, SIDES, (2, 4))))


def test_a_run_ends_at_its_share_and_every_scenario_that_counts_compares_configs(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    budgets.main([str(spec), "--seeds", "1", "--printed"])
    _, line, said = capsys.readouterr().out.splitlines()
    single, *figures = [float(word) for word in line.split() if word.replace(".", "").isdigit()]
    assert len(figures) == len(budgets.SHARES) and min(single, *figures) >= 1 and figures[-1] <= single
    (problem,) = read_problems(read_spec(spec))
    found = cross_validate(problem, fit)
    assert found is not None and float(said.split()[-2]) == pytest.approx(
        (found.groups or found.folds).quality.slowdown, rel=0.1
    )
    recorded = read_run(problem.table.folder)
    cells = len(recorded.scenarios) * len(recorded.header.configs)
    for share in (0.2, 0.5):
        table = budgets.early(recorded, list(recorded.scenarios), share, 0)
        timed: dict[str, list[str]] = {}
        for visit in table.visits:
            timed.setdefault(visit.scenario, []).extend(visit.cells)
        assert sum(map(len, timed.values())) <= share * cells + len(recorded.header.configs)
        assert timed and all(len(set(found)) > 1 for found in timed.values())


def test_more_candidates_are_never_slower_and_one_is_what_the_fit_chooses(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    candidates.main([str(spec)])
    _, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["scenarios", "groups"]
    for line in lines:
        figures = [float(figure) for figure in line.split()[3:]]
        assert figures == sorted(figures, reverse=True) and figures[-1] >= 1
    (problem,) = read_problems(read_spec(spec))
    found = cross_validate(problem, fit)
    assert found is not None
    assert float(lines[0].split()[3]) == pytest.approx(found.folds.quality.slowdown, abs=1e-3)
