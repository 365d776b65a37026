"""benchmarks.fit.tables: every stage that is left out exists, and every way gives choices."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from unittest.mock import patch

import pytest
from treegen_builders import SIDES, problem

from benchmarks.fit import tables
from benchmarks.fit.tables import WITHOUT
from treegen.build import fit_tree
from treegen.core.problem import FORBIDDEN
from treegen.fit.costs import costs


@pytest.mark.parametrize("stage", WITHOUT)
def test_the_fit_without_a_stage(tmp_path: Path, stage: str) -> None:
    made = problem(tmp_path, shapes=[(rows, columns, 2) for rows in SIDES for columns in SIDES])
    expected = fit_tree(made)
    for name, replacement in WITHOUT[stage].items():
        assert callable(resolve_name(name.replace(".search.", ".search:").replace("build.", "build:")))
        with patch(name, replacement):
            assert costs(fit_tree(made), made).max() < FORBIDDEN
    assert fit_tree(made) == expected


def test_every_way_chooses_in_every_scenario(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem(tmp_path, shapes=[(rows, columns, 2) for rows in SIDES for columns in SIDES])
    spec = tmp_path / "treegen.yaml"
    tables.main([str(spec), f"{spec}:{tmp_path / 'tables/h100'}", "--repeats", "1"])
    printed = capsys.readouterr().out
    assert all(f"scale {name} " in printed for name in ("nvidia_h100", "h100"))
    assert all(printed.count(f" {way} ") == 2 for way in ("greedy", "forest", "treegen, raw features"))
