"""What `treegen explain` prints, word for word, for a small project."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from rich.console import Console
from treegen_builders import (
    DEVICE,
    KERNEL,
    SIDES,
    Cell,
    Row,
    build,
    planted,
    spec,
    winners,
    write_project,
    write_spec,
    write_winners,
)

from treegen.cli.main import main
from treegen.review.explain.explanation import explain
from treegen.review.explain.terminal import show_explanation
from treegen.review.explain.tuned_module import read_tuned_module

GOLDEN = Path(__file__).parent / "golden"
SHAPES: list[Row] = [(rows, columns, heads) for rows in SIDES for columns in SIDES for heads in (2, 8)]
SECTIONS = {
    "trusted_as_measured": ["heads"],
    "words": {"rows": "batch", "area": "batch x width", "columns": "width", "warps": "waves"},
    "regimes": {"small": "area <= 128"},
}


def _times(row: Row) -> list[Cell]:
    """Work makes `planted` slower; medium was timed in small shapes only."""
    narrow, medium, wide = (time * (1 + row[0] * row[1] / 1000) for time in planted(row))
    return [round(narrow, 2), round(medium, 2) if row[0] <= 8 else "", round(wide, 2)]


def _explained(path: Path, *words: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["explain", KERNEL, *words, "--spec", str(path), "--top", "2"]) == 0
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_project(tmp_path_factory.mktemp("measured"), spec(**SECTIONS), shapes=SHAPES, times=_times)
    assert build(path) == 0
    return path


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("measured", ["rows=8", "columns=64", "heads=2"]),
        ("outside", ["rows=8", "columns=4_096", "heads=16"]),
        ("assumed", ["rows=6"]),
    ],
)
def test_the_text(project: Path, name: str, words: list[str]) -> None:
    """Of a measured shape, of one outside the tuned ones, and of one with features taken from a scenario."""
    assert _explained(project, *words) == (GOLDEN / f"explain_{name}.txt").read_text()


def test_the_text_of_a_table_of_winners(tmp_path: Path) -> None:
    write_winners(tmp_path / "tables/h100", shapes=SHAPES, times=winners)
    path = write_spec(tmp_path, spec(**SECTIONS))
    assert build(path) == 0
    assert _explained(path, "rows=8", "columns=32", "heads=2") == (GOLDEN / "explain_winners.txt").read_text()


def test_the_fallback_breaks_a_constraint_and_nothing_else_may_run(project: Path) -> None:
    text = _explained(project, "rows=8", "columns=64", "heads=130")
    assert "  plain: block 64, waves 4\n  this shape breaks block >= heads; the fallback is exempt\n" in text
    assert "runners-up" not in text and "\nnearest measured scenarios\n" in text
    assert "breaks" not in _explained(project, "rows=8", "columns=64", "heads=16")


def test_colours_are_for_terminals_only(project: Path) -> None:
    found = explain(read_tuned_module(project, KERNEL, DEVICE), {"rows": 4096}, 2)
    for terminal in (False, True):
        out = io.StringIO()
        show_explanation(
            found, Console(file=out, force_terminal=terminal, width=100, markup=False, highlight=False)
        )
        assert ("\x1b[1;31mOUTSIDE" in out.getvalue()) == terminal
