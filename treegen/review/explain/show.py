"""What `treegen explain` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from treegen.core.errors import one_line
from treegen.review.explain import wording
from treegen.review.explain.explanation import Explanation

_WIDTH = 100
_LOUD, _HEADING = "bold red", "bold"


def show_explanation(found: Explanation, console: Console | None = None) -> None:
    """Print an explanation; colours only where the console has them."""
    console = console or Console(width=_WIDTH, highlight=False, markup=False, emoji=False)
    kernel = found.subject.kernel
    title, *sources = wording.source_lines(found)
    console.print(Text(one_line(title), _HEADING))
    _lines(console, sources)
    if found.outside:
        console.print()
        console.print(Text("OUTSIDE WHAT WAS TUNED", _LOUD))
        _lines(console, (wording.outside_line(reason, kernel) for reason in found.outside), _LOUD)
    _section(console, "shape", wording.shape_lines(found))
    config = found.path.config
    _section(console, f"launches {kernel.constant_name(config)}", [wording.config_words(config, kernel)])
    _section(console, "time", wording.time_lines(found))
    _heading(console, "why")
    if found.path.steps:
        _grid(console, ["question", "here", "answer", "kind"], wording.path_rows(found), right=[1])
    _lines(console, [wording.region_line(found)], _LOUD if found.path.fell else "")
    if found.estimate is not None:
        _runners_up(console, found)
    _heading(console, "nearest measured scenarios")
    for neighbour in found.neighbours:
        first, *rest = wording.neighbour_lines(neighbour, found)
        _lines(console, [first])
        _lines(console, rest, indent=4)
    won = wording.won_line(found)
    _lines(console, [won] if won else [])


def _runners_up(console: Console, found: Explanation) -> None:
    assert found.estimate is not None
    _heading(console, "runners-up, by their time over the launched config's")
    rows = wording.runner_up_rows(found)
    if rows:
        _grid(console, ["config", "ratio", "80% range", "us", "both timed near"], rows, right=[1, 2, 3, 4])
    note = wording.runners_up_note(found)
    _lines(console, [note] if note else [])


def _section(console: Console, title: str, lines: Iterable[str]) -> None:
    _heading(console, title)
    _lines(console, lines)


def _heading(console: Console, title: str) -> None:
    console.print()
    console.print(Text(one_line(title), _HEADING))


def _lines(console: Console, lines: Iterable[str], style: str = "", indent: int = 2) -> None:
    margin = " " * indent
    for line in lines:
        # Text from outside may hold terminal escapes.
        for part in textwrap.wrap(one_line(line), _WIDTH - indent, break_on_hyphens=False):
            console.print(Text(margin + part, style))


def _grid(console: Console, columns: list[str], rows: list[list[str]], right: list[int]) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
