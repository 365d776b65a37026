"""A comparison as a pull-request comment, tables in GitHub's dialect."""

from __future__ import annotations

import re
from collections.abc import Iterator

from treegen.core.errors import one_line
from treegen.review.diff.price import Verdict
from treegen.review.diff.results import Comparison, Diff, Kind
from treegen.review.diff.wording import (
    LEGEND,
    Cell,
    Grid,
    changes_grid,
    contradiction,
    hidden,
    overall_grid,
    regressions,
    table_lines,
    title,
    verdict,
)

_LOUD = (Verdict.SLOWER,)
_MARKUP = re.compile(
    r"[\\`*{}\[\]<|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])"  # GitHub leaves _ within a word alone
    r"|(?P<reference>[@#]|:(?=//)|(?<=www)\.|(?<=[Gg][Hh])-(?=[0-9]))"
)
_NO_SPACE = (
    "&#8203;"  # no entity hides a mention, an issue or a link from GitHub, which looks for them once more
)


def markdown(diff: Diff) -> str:
    """The whole comment."""
    return re.sub("\n{3,}", "\n\n", "\n".join(_lines(diff))).rstrip() + "\n"


def _lines(diff: Diff) -> Iterator[str]:
    yield f"### treegen diff: {code(diff.old)} to {code(diff.new)}\n"
    yield f"**{text(verdict(diff))}**\n"
    quiet = [c for c in diff.comparisons if not _tells(c)]
    told = [c for c in diff.comparisons if _tells(c)]
    for comparison in told:
        yield from _comparison(comparison)
    for path, how in diff.files.items():
        yield f"- {code(path)} {text(how)}"
    if quiet:
        yield f"\nThe same before and after: {', '.join(code(f'{c.kernel}/{c.device}') for c in quiet)}.\n"
    if any(c.changes and c.overall for c in told):
        yield f"<sub>{text(LEGEND)}</sub>"


def _tells(comparison: Comparison) -> bool:
    """Whether there is anything to say of a module."""
    return comparison.kind is not Kind.SAME or comparison.table is not None or comparison.note is not None


def _comparison(comparison: Comparison) -> Iterator[str]:
    yield f"#### {text(title(comparison))}\n"
    if comparison.note is not None:
        yield f"Note: {text(comparison.note)}\n"
    yield from (f"- **{text(line)}**" for line in regressions(comparison))
    if contradiction(comparison):
        yield f"\n**{contradiction(comparison)}**"
    if comparison.changes:
        yield ""
        if comparison.overall:
            yield from _grid(overall_grid(comparison))
        yield from _grid(changes_grid(comparison))
        if hidden(comparison):
            yield f"{text(hidden(comparison))}\n"
    if comparison.leaves is not None and comparison.leaves[0] != comparison.leaves[1]:
        yield f"Leaves, guards included: {comparison.leaves[0]} before, {comparison.leaves[1]} now.\n"
    if comparison.table is not None:
        yield "The table was measured anew. " + text(" ".join(table_lines(comparison.table))) + "\n"
        for key, (before, after) in comparison.table.run.items():
            yield f"- {text(key)}: {code(before)} before, {code(after)} now"
        yield ""


def _grid(grid: Grid) -> Iterator[str]:
    yield f"| {' | '.join(text(column) for column in grid.columns)} |"
    yield f"|{' --- |' * len(grid.columns)}"
    for row in grid.rows:
        yield f"| {' | '.join(_cell(cell) for cell in row)} |"
    yield ""


def _cell(cell: Cell) -> str:
    told = text(cell.text)
    return f"**{told}**" if told and cell.verdict in _LOUD else told


def text(plain: str) -> str:
    """Text in which nothing is markup, a mention or a link, and that reads well as it is. Not for the
    beginning of a line."""
    return _MARKUP.sub(_escaped, one_line(plain))


def _escaped(found: re.Match[str]) -> str:
    return f"&#{ord(found.group())};{_NO_SPACE if found.group('reference') else ''}"


def code(name: str) -> str:
    """A name from outside as a code span; not for tables."""
    return f"`{one_line(name).replace('`', chr(39)) or ' '}`"
