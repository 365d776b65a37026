"""benchmarks.fit.stages: every stage that it leaves out exists, and the fit still gives a tree without it."""

from __future__ import annotations

from pathlib import Path
from pkgutil import resolve_name
from unittest.mock import patch

import pytest
from treegen_builders import SIDES, problem

from benchmarks.fit.stages import WITHOUT
from treegen.build import fit_tree
from treegen.core.problem import FORBIDDEN
from treegen.fit.tree_costs import costs


@pytest.mark.parametrize("stage", WITHOUT)
def test_the_fit_without_a_stage(tmp_path: Path, stage: str) -> None:
    made = problem(tmp_path, shapes=[(rows, columns, 2) for rows in SIDES for columns in SIDES])
    expected = fit_tree(made)
    for name, replacement in WITHOUT[stage].items():
        assert callable(resolve_name(name.replace(".search.", ".search:").replace("build.", "build:")))
        with patch(name, replacement):
            assert costs(fit_tree(made), made).max() < FORBIDDEN
    assert fit_tree(made) == expected
