"""A diff as a pull-request comment in GitHub's Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from treegen.core.errors import one_line
from treegen.review.diff import wording
from treegen.review.diff.price import Price, Verdict
from treegen.review.diff.results import Diff, ModuleComparison

_MARKUP = re.compile(
    r"[\\`*{}\[\]<|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # GitHub leaves _ within a word alone
    r"|(?P<reference>[@#]|:(?=//)|(?<=www)\.|(?<=[Gg][Hh])-(?=[0-9]))"
)
# GitHub finds mentions, issues and links in unescaped text, too; only another character hides them.
_ZERO_WIDTH_SPACE = "&#8203;"


def markdown(diff: Diff) -> str:
    """The whole comment."""
    return re.sub("\n{3,}", "\n\n", "\n".join(_lines(diff))).rstrip() + "\n"


def text(plain: str) -> str:
    """Escape text so that nothing in it is markup, a mention, a reference or a link.

    It must not begin a line.
    """
    return _MARKUP.sub(_escaped, one_line(plain))


def code(name: str) -> str:
    """A name from outside as a code span. It must not stand in a table."""
    return f"`{one_line(name).replace('`', chr(39)) or ' '}`"


def _escaped(match: re.Match[str]) -> str:
    return f"&#{ord(match.group())};{_ZERO_WIDTH_SPACE if match.group('reference') else ''}"


def _lines(diff: Diff) -> Iterator[str]:
    yield f"### treegen diff: {code(diff.old)} to {code(diff.new)}\n"
    yield f"**{text(wording.summary(diff))}**\n"
    for comparison in diff.comparisons:
        if comparison.has_news:
            yield from _comparison_lines(comparison)
    yield from (f"- {code(path)} {text(how)}" for path, how in diff.files.items())
    same = [code(f"{module.kernel}/{module.device}") for module in diff.comparisons if not module.has_news]
    if same:
        yield f"\nThe same before and after: {', '.join(same)}.\n"
    if wording.legend(diff):
        yield f"<sub>{text(wording.legend(diff))}</sub>"


def _comparison_lines(comparison: ModuleComparison) -> Iterator[str]:
    yield f"#### {text(wording.title(comparison))}\n"
    if comparison.note is not None:
        yield f"Note: {text(comparison.note)}\n"
    yield from (f"- **{text(line)}**" for line in wording.regressions(comparison))
    if wording.contradiction(comparison):
        yield f"\n**{wording.contradiction(comparison)}**"
    if comparison.changes:
        yield ""
        if comparison.overall:
            yield from _overall_table(comparison)
        yield from _changes_table(comparison)
        if wording.hidden(comparison):
            yield f"{text(wording.hidden(comparison))}\n"
    if sizes := wording.size_words(comparison):
        yield f"{text(sizes)}\n"
    if comparison.table is not None:
        lines = [wording.table_title(comparison.table), *wording.table_lines(comparison.table)]
        yield f"{text(' '.join(lines))}\n"
        for key, (before, after) in comparison.table.run.items():
            yield f"- {text(key)}: {code(before)} before, {code(after)} now"
        yield ""


def _overall_table(comparison: ModuleComparison) -> Iterator[str]:
    rows = (
        (
            label,
            _price_cell(price),
            text(wording.scenario_words(price.worst)),
            text(wording.scenario_words(price.best)),
        )
        for label, price in zip(comparison.priced_by, comparison.overall, strict=True)
    )
    yield from _table(("all scenarios", "time", "worst", "best"), rows)


def _changes_table(comparison: ModuleComparison) -> Iterator[str]:
    rows = (
        (
            f"{text(change.what)} ({text(wording.launches_words(change))})",
            text(wording.where_words(change)),
            text(change.measured),
            f"{change.prices[0].scenarios:,}" if change.prices else "",
            *map(_price_cell, change.prices),
        )
        for change in comparison.changes[: wording.SHOWN]
    )
    yield from _table(("launches", "where", "measured there", "scenarios", *comparison.priced_by), rows)


def _price_cell(price: Price) -> str:
    words = text(wording.price_words(price))
    return f"**{words}**" if price.verdict is Verdict.SLOWER else words


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """cells: Markdown."""
    columns = tuple(columns)
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""
