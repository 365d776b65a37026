"""benchmarks.fit.budgets judges modules of runs that ended early."""

from __future__ import annotations

from pathlib import Path

import pytest
from treegen_builders import SIDES, write_project

from benchmarks.fit import budgets
from treegen.build import read_problems
from treegen.read.spec import read_spec
from tuning_table import read_run


def test_a_run_ends_at_its_share_and_every_scenario_that_counts_compares_configs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = [(rows, columns, heads) for rows in SIDES for columns in SIDES for heads in (2, 4)]
    path = write_project(tmp_path, shapes=shapes)
    budgets.main([str(path), "--seeds", "1"])
    _, line = capsys.readouterr().out.splitlines()
    single, *figures = [float(word) for word in line.split() if word.replace(".", "").isdigit()]
    assert len(figures) == len(budgets.SHARES) and min(single, *figures) >= 1 and figures[-1] <= single
    (problem,) = read_problems(read_spec(path))
    recorded = read_run(problem.table.folder)
    cells = len(recorded.scenarios) * len(recorded.header.configs)
    for share in (0.2, 0.5):
        table = budgets.early(recorded, list(recorded.scenarios), share, 0)
        timed: dict[str, list[str]] = {}
        for visit in table.visits:
            timed.setdefault(visit.scenario, []).extend(visit.cells)
        assert sum(map(len, timed.values())) <= share * cells + len(recorded.header.configs)
        assert timed and all(len(set(found)) > 1 for found in timed.values())
