"""The command's exit codes, options and terminal output."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from treegen_builders import write_winners
from treegen_diffs import MEDIUM, NARROW, compared, project
from treegen_priced import priced

from treegen.cli.main import main
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split, Tree
from treegen.review.diff.markdown import markdown
from treegen.review.diff.results import ComparisonKind, ConfigChange, ModuleComparison
from treegen.review.diff.table_change import Drift, TableChange
from treegen.review.diff.terminal import show
from treegen.review.diff.wording import SHOWN, hidden, table_lines

ESCAPES = "\x1b[31mred\x1b]0;title\x07\u202e[bold]b[/bold]\r\n\x9b2J"


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `old` and `slower`, which costs 25% in a third of the scenarios."""
    project(tmp_path / "old")
    project(tmp_path / "slower", Split("area", 64, NARROW, MEDIUM))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("form", ["terminal", "markdown", "json"])
@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (("old", "old"), 0),
        (("slower", "old"), 0),
        (("old", "slower"), 1),
        (("old", "slower", "--threshold", "24"), 1),
        (("old", "slower", "--threshold", "26"), 0),
        (("old", "slower", "--threshold", "0"), 1),
    ],
)
def test_exit_codes(
    folders: Path, form: str, arguments: tuple[str, ...], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diff", *arguments, "--format", form]) == status
    said = capsys.readouterr()
    assert said.err == "" and said.out.endswith("\n")
    if form != "json":
        assert ("regresses by more than" in said.out) == (status == 1) or "Nothing regresses" in said.out


@pytest.mark.parametrize("threshold", ["nan", "inf", "-1", "1001", "-inf"])
def test_a_threshold_is_a_percentage(folders: Path, refusal: Callable[..., str], threshold: str) -> None:
    message = f"--threshold {float(threshold)}: must be a percentage from 0 to 1000"
    assert refusal(folders, "diff", "old", "slower", f"--threshold={threshold}") == message


def test_a_table_of_winners_gives_no_slowdown(folders: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("old", "slower"):
        write_winners(folders / name / "tables/h100")
    assert main(["diff", "old", "slower"]) == 0  # 3 of 9 lost are no proof
    said = capsys.readouterr().out
    assert "won 9 -> 6 by the table" in said and "won 3 -> 0 by the table" in said
    assert not re.search(r"[0-9]%", said.rsplit("\n", 2)[0].split("Time is")[0])


def test_escapes_in_tables_and_names_reach_no_terminal(folders: Path) -> None:
    name = "new\x1b[31m[red]\u202e"
    new = project(
        folders / name,
        Split("area", 64, NARROW, MEDIUM),
        driver=ESCAPES.replace("\r\n", ""),
        timing="[b]t[/b]",
    )
    (new / "generated/scale/\x1b[2J.py").write_text("")
    (new / "generated/scale/default.py").write_text("edited")
    diff = compared("old", new)
    for terminal in (False, True):
        out = io.StringIO()
        show(
            diff,
            Console(file=out, width=120, highlight=False, markup=False, emoji=False, force_terminal=terminal),
        )
        said = out.getvalue()
        assert ("\x1b[" in said) == terminal
        left = re.sub("\x1b\\[[0-9;]*m", "", said)
        assert all(c.isprintable() or c == "\n" for c in left)
        assert "550.54 -> \\x1b[31mred\\x1b]0;title\\x07\\u202e[bold]b[/bold]\\x9b2J" in left.replace(
            "\n    ", ""
        )
        assert "[b]t[/b]" in left and "\\x1b[2J.py is new" in left
        assert "\x1b[2J" not in said and "\x1b[31mred" not in said
        assert not re.search(" $", left, re.MULTILINE)


def test_regressions_are_red_and_gains_green(folders: Path) -> None:
    for old, new, colour in (("old", "slower", "1;31m+25%"), ("slower", "old", "32m-20%")):
        out = io.StringIO()
        show(compared(old, new), Console(file=out, width=120, force_terminal=True, color_system="standard"))
        assert f"\x1b[{colour}" in out.getvalue()


def test_many_changes_are_counted(tmp_path: Path) -> None:
    """Each of the smallest areas gets another config, which makes more changes than are shown."""
    chain: Tree = NARROW
    for i in reversed(range(SHOWN + 2)):
        chain = Split("area", i, Leaf(Config("plain", (("block", 256 + i), ("warps", 4)))), chain)
    diff = compared(project(tmp_path / "old", NARROW), project(tmp_path / "new", chain))
    comment, out = markdown(diff), io.StringIO()
    assert comment.count("\n| 16 -> ") == SHOWN
    assert "\n2 more changes, only where nothing was measured: see --format json.\n" in comment
    show(diff, Console(file=out, width=120))
    assert out.getvalue().count("\n    no measured scenario\n") == SHOWN - 2
    assert "none there" not in out.getvalue()


@pytest.mark.parametrize(
    ("scenarios", "words"),
    [
        ([0], "1 more change, only where nothing was measured"),
        ([1], "1 more change of 1 scenario"),
        ([0, 7, 0], "3 more changes of 7 scenarios, 2 of them only where nothing was measured"),
        ([None], "1 more change"),
    ],
)
def test_the_words_for_hidden_changes(scenarios: list[int | None], words: str) -> None:
    """None: no table prices the change."""
    prices = [() if n is None else (priced(np.ones(n), np.ones(n)),) for n in [*[1] * SHOWN, *scenarios]]
    changes = tuple(ConfigChange("A", "B", "", (), 0, "", price, regresses=False) for price in prices)
    comparison = ModuleComparison("scale", "h100", ComparisonKind.CHANGED, changes=changes)
    assert hidden(comparison) == f"{words}: see --format json."


def test_the_configs_that_moved_most_are_one_line() -> None:
    moved = {"A": Drift(9, 1.5, 1.4, 1.6), "B": Drift(8, 0.8, 0.7, 0.9)}
    change = TableChange(9, 9, 9, None, None, moved, lost=0, gained=0, appeared=0, vanished=0, run={})
    assert table_lines(change)[1:] == [
        "Moved most: A, 9 cells in both: +50% (5% to 95%: +40% to +60%); "
        "B, 8 cells in both: -20% (5% to 95%: -30% to -10%)."
    ]
