"""A comparison on a terminal, in colour where there is one."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from treegen.core.errors import one_line
from treegen.review.diff.price import Price, Verdict
from treegen.review.diff.results import Comparison, Diff, Kind
from treegen.review.diff.wording import (
    LEGEND,
    SHOWN,
    contradiction,
    counted,
    end_words,
    hidden,
    price_cell,
    table_lines,
    title,
    verdict,
    where,
)

_WIDTH = 120
_STYLES = {
    Verdict.SLOWER: "bold red",
    Verdict.TOLERATED: "yellow",
    Verdict.FASTER: "green",
    Verdict.UNTIMED_PENALTY: "yellow",
}


def show(diff: Diff, console: Console | None = None) -> None:
    """Print what there is to say of each module, then the verdict."""
    console = console or Console(width=_WIDTH, highlight=False, markup=False, emoji=False)
    for comparison in diff.comparisons:
        _show(comparison, console)
    for path, how in diff.files.items():
        console.print(one_line(f"{path} {how}"), soft_wrap=True)
    if any(comparison.changes and comparison.overall for comparison in diff.comparisons):
        _print(console, Text(LEGEND, style="dim"), 0)
    style = "bold red" if diff.regresses else "bold green"
    console.print(Text(one_line(verdict(diff)), style=style), soft_wrap=True)


def _show(comparison: Comparison, console: Console) -> None:
    told = comparison.kind is not Kind.SAME or comparison.table is not None
    console.print(Text(title(comparison), style="bold" if told else ""), soft_wrap=True)
    if comparison.note is not None:
        _print(console, Text(comparison.note))
    if comparison.changes and comparison.judges:
        _print(console, Text("all scenarios"))
        for judge, price in zip(comparison.judges, comparison.overall, strict=True):
            ends = [words for end in (price.worst, price.best) if (words := end_words(end))]
            _print(console, Text("; ").join([_priced(judge, price), *map(Text, ends)]), 4)
    if contradiction(comparison):
        _print(console, Text(contradiction(comparison), style="bold"), 4)
    for change in comparison.changes[:SHOWN]:
        console.print()
        _print(console, Text(change.what, style="bold"))
        _print(console, Text(where(change)), 4)
        if change.measured:
            count = counted(change.prices[0].scenarios, "measured scenario")
            _print(console, Text(f"{count}: {change.measured}", style="dim"), 4)
        if change.prices:
            _print(console, Text("; ").join(map(_priced, comparison.judges, change.prices)), 4)
    if hidden(comparison):
        console.print()
        _print(console, Text(hidden(comparison)))
    if comparison.table is not None:
        if comparison.changes:
            console.print()
        _print(console, Text("the table was measured anew"))
        for line in table_lines(comparison.table):
            _print(console, Text(line), 4)
        for key, (before, after) in comparison.table.run.items():
            _print(console, Text(f"{key}: {before} -> {after}"), 4)
    if told:
        console.print()


def _priced(judge: str, price: Price) -> Text:
    cell = price_cell(price)
    style = _STYLES.get(cell.verdict, "") if cell.verdict else ""
    return Text.assemble((cell.text, style), f" {judge}")


def _print(console: Console, text: Text, indent: int = 2) -> None:
    """Wrapped, with every line indented."""
    text.plain = one_line(text.plain)
    for line in text.wrap(console, console.width - indent):
        line.rstrip()
        console.print(Text(" " * indent).append_text(line), soft_wrap=True)
