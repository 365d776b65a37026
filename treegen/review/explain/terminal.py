"""The terminal output of `treegen explain`."""

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


def show_explanation(explanation: Explanation, console: Console | None = None) -> None:
    """Print an explanation; colours only where the console has them."""
    console = console or Console(width=_WIDTH, highlight=False, markup=False, emoji=False)
    kernel, config = explanation.tuned.kernel, explanation.path.config
    title, *sources = wording.source_lines(explanation)
    console.print(Text(one_line(title), _HEADING))
    _lines(console, sources)
    if explanation.outside:
        _heading(console, "OUTSIDE WHAT WAS TUNED", _LOUD)
        _lines(console, (wording.outside_line(reason, kernel) for reason in explanation.outside), _LOUD)
    _heading(console, "shape")
    _lines(console, wording.shape_lines(explanation))
    _heading(console, f"launches {kernel.constant_name(config)}")
    _lines(console, [wording.config_words(config, kernel)])
    if explanation.broken:
        _lines(console, [wording.broken_line(explanation)], _LOUD)
    _heading(console, "time")
    _lines(console, wording.time_lines(explanation))
    _heading(console, "why")
    steps = [wording.path_row(step, kernel) for step in explanation.path.steps]
    _grid(console, ["question", "here", "answer", "kind"], steps, right=[1])
    _lines(console, [wording.region_line(explanation)], _LOUD if explanation.path.fell else "")
    if explanation.estimate is not None and explanation.estimate.compares:
        _heading(console, "runners-up, by their time over the launched config's")
        rows = [
            wording.runner_up_row(runner_up, kernel)
            for runner_up in explanation.estimate.runners_up[: explanation.top]
        ]
        _grid(console, ["config", "ratio", "80% range", "us", "both timed near"], rows, right=[1, 2, 3, 4])
        if explanation.estimate.not_compared:
            where = "not timed here" if explanation.estimate.time.measured else "timed too rarely near here"
            _lines(console, [f"{explanation.estimate.not_compared} other configs were {where} to compare"])
    _heading(console, "nearest measured scenarios")
    for neighbour in explanation.neighbours:
        first, *rest = wording.neighbour_lines(neighbour, kernel)
        _lines(console, [first])
        _lines(console, rest, indent=4)
    if not explanation.tuned.knows_times:
        _lines(
            console,
            [f"the launched config won {explanation.won} of the {explanation.won_of} nearest scenarios"],
        )


def _heading(console: Console, title: str, style: str = _HEADING) -> None:
    console.print()
    console.print(Text(one_line(title), style))


def _lines(console: Console, lines: Iterable[str], style: str = "", indent: int = 2) -> None:
    margin = " " * indent
    for line in lines:
        # Text from outside may hold terminal escapes.
        for part in textwrap.wrap(one_line(line), _WIDTH - indent, break_on_hyphens=False):
            console.print(Text(margin + part, style))


def _grid(console: Console, columns: list[str], rows: list[list[str]], right: list[int]) -> None:
    """Print a table; nothing where it has no rows."""
    if not rows:
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    console.print(Padding(table, (0, 0, 0, 2), expand=False))
