"""What a reviewer reads, letter by letter: one leaf of a small tree and its table changed.

After an intended change of the output, write the new files:
    UPDATE_GOLDEN=1 python -m pytest tests/treegen/review/test_diff_golden.py
Read the difference in git before committing it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from treegen_builders import Row, planted, spec, time_rows
from treegen_diffs import BEST, MEDIUM, NARROW, compared, project

from treegen.cli.main import main
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split
from treegen.review.diff.markdown import markdown

GOLDEN = Path(__file__).with_name("golden")
SHAPES: list[Row] = [(rows, columns, 2) for rows in (1, 8, 64, 512) for columns in (1, 8, 64, 512)]
CONTENT = spec(
    words={"rows": "batch", "area": "elements", "block": "elements a program"},
    regimes={"decode": "columns <= 1", "prompts": "columns > 1"},
)


def _project(folder: Path, tree: Split, factor: float, **run: str) -> Path:
    """Second repeats take 1% longer; `factor` multiplies the times of WIDE."""

    def times(row: Row) -> list[float]:
        narrow, medium, wide = planted(row)
        return [narrow, medium, wide * factor]

    rows = time_rows(SHAPES, times)
    for row in rows[len(SHAPES) :]:
        row[2:] = [float(cell) * 1.01 for cell in row[2:]]
    return project(folder, tree, CONTENT, shapes=SHAPES, rows=rows, **run)


@pytest.fixture(autouse=True)
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the old table MEDIUM takes 1.25 of WIDE's time where it replaces it, by the new one 0.83."""
    monkeypatch.chdir(tmp_path)
    wide = BEST.high
    _project(Path("main"), Split("area", 64, NARROW, Split("columns", 1, NARROW, wide)), 1.0)
    tree = Split("area", 64, NARROW, Split("columns", 1, NARROW, Split("rows", 63, wide, MEDIUM)))
    _project(Path("retuned"), tree, 1.5, timing="500 replays", date="2026-02-01")


def _is_golden(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def test_markdown() -> None:
    _is_golden("diff_markdown.md.txt", markdown(compared("main", "retuned")))


def test_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "main", "retuned"]) == 1
    _is_golden("diff_terminal.txt", capsys.readouterr().out)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "main", "retuned", "--format", "json"]) == 1
    _is_golden("diff_figures.json.txt", capsys.readouterr().out)


def test_the_same_says_little(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "main", "main", "--format", "markdown"]) == 0
    assert capsys.readouterr().out == (
        "### treegen diff: `main` to `main`\n\n"
        "**All modules launch the same. Nothing regresses by more than noise and 1.0%.**\n\n"
        "The same before and after: `scale/nvidia_h100`, `scale/default`.\n"
    )


def test_text_only_and_another_fallback(tmp_path: Path) -> None:
    """A split that decides nothing, and one whose one side no shape reaches."""
    again = Split("area", 64, Split("rows", 7, NARROW, Split("rows", 3, MEDIUM, NARROW)), BEST.high)
    fallback = spec(fallback={"variant": "plain", "block": 128, "warps": 8})
    old, new = project(Path("old")), project(Path("new"), again, fallback)
    assert Leaf(Config("plain", (("block", 128), ("warps", 8)))) == BEST.high
    assert markdown(compared(old, new)) == (
        "### treegen diff: `old` to `new`\n\n"
        "**1 of 2 modules changed. Nothing regresses by more than noise and 1.0%. "
        "No table prices scale on default.**\n\n"
        "#### scale on nvidia_h100 changed in text only: it launches the same for all integers\n\n"
        "Leaves, guards included: 2 before, 4 now.\n\n"
        "#### scale on default launches differently\n\n"
        "| launches | where | measured there | scenarios |\n"
        "| --- | --- | --- | --- |\n"
        "| 64 -> 128 block, 4 -> 8 warps (PLAIN_B64_W4 -> PLAIN_B128_W8) | all shapes |  |  |\n"
    )
