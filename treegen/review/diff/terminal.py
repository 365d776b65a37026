"""A diff on a terminal, in colour if the terminal has colours."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from treegen.core.errors import one_line
from treegen.review.diff import wording
from treegen.review.diff.price import Price, Verdict
from treegen.review.diff.results import ConfigChange, Diff, ModuleComparison
from treegen.review.printing import counted

_WIDTH = 120
_STYLES = {
    Verdict.SLOWER: "bold red",
    Verdict.TOLERATED: "yellow",
    Verdict.FASTER: "green",
    Verdict.UNTIMED: "yellow",
}


def show(diff: Diff, console: Console | None = None) -> None:
    """Print each module, then the summary."""
    console = console or Console(width=_WIDTH, highlight=False, markup=False, emoji=False)
    for comparison in diff.comparisons:
        _show_comparison(comparison, console)
    for path, how in diff.files.items():
        console.print(one_line(f"{path} {how}"), soft_wrap=True)
    if wording.legend(diff):
        _print(console, wording.legend(diff), 0, "dim")
    style = "bold red" if diff.regresses else "bold green"
    console.print(Text(one_line(wording.summary(diff)), style=style), soft_wrap=True)


def _show_comparison(comparison: ModuleComparison, console: Console) -> None:
    console.print(
        Text(wording.title(comparison), style="bold" if comparison.has_news else ""), soft_wrap=True
    )
    if comparison.note is not None:
        _print(console, comparison.note)
    if sizes := wording.size_words(comparison):
        _print(console, sizes)
    if comparison.changes and comparison.overall:
        _print(console, "all scenarios")
        for label, price in zip(comparison.priced_by, comparison.overall, strict=True):
            ends = [Text(wording.scenario_words(end)) for end in (price.worst, price.best) if end is not None]
            _print(console, Text("; ").join([_priced(label, price), *ends]), 4)
    if wording.contradiction(comparison):
        _print(console, wording.contradiction(comparison), 4, "bold")
    for change in comparison.changes[: wording.SHOWN]:
        console.print()
        _show_change(change, comparison.priced_by, console)
    if wording.hidden(comparison):
        console.print()
        _print(console, wording.hidden(comparison))
    if comparison.table is not None:
        if comparison.changes:
            console.print()
        _print(console, wording.table_title(comparison.table))
        values = comparison.table.run.items()
        run = [f"{key}: {before} -> {after}" for key, (before, after) in values]
        for line in [*wording.table_lines(comparison.table), *run]:
            _print(console, line, 4)
    if comparison.has_news:
        console.print()


def _show_change(change: ConfigChange, labels: tuple[str, ...], console: Console) -> None:
    _print(console, change.what, style="bold")
    _print(console, wording.launches_words(change), 4, "dim")
    _print(console, wording.where_words(change), 4)
    if change.measured:
        count = counted(change.prices[0].scenarios, "measured scenario")
        _print(console, f"{count}: {change.measured}", 4, "dim")
    if change.prices and not any(price.scenarios for price in change.prices):
        _print(console, "no measured scenario", 4, "dim")
    elif change.prices:
        _print(console, Text("; ").join(map(_priced, labels, change.prices)), 4)


def _priced(label: str, price: Price) -> Text:
    return Text.assemble((wording.price_words(price), _STYLES.get(price.verdict, "")), f" {label}")


def _print(console: Console, text: Text | str, indent: int = 2, style: str = "") -> None:
    """Print wrapped text with every line indented."""
    text = Text(text, style=style) if isinstance(text, str) else text
    text.plain = one_line(text.plain)
    for line in text.wrap(console, console.width - indent):
        line.rstrip()
        console.print(Text(" " * indent).append_text(line), soft_wrap=True)
