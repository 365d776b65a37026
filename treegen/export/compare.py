"""What two versions of a tuned file launch differently, at their keys and between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from treegen.core.errors import InputError, shown
from treegen.export.tuned_files import entry_for, read_entries, starts
from treegen.review.diff.markdown import code, text
from treegen.review.printing import counted


class Change(NamedTuple):
    """A range of M in which other parameters are launched."""

    first: int
    last: int | None  # None: and all above
    parameters: dict[str, tuple[Any, Any]]  # those that differ, before and after; None is absent or null


def changes(old: Path, new: Path) -> list[Change]:
    """Compare two tuned files from M = 1 on, by the rules of their projects. Raises InputError."""
    before, after = read_entries(old), read_entries(new)
    firsts = sorted(starts(before) | starts(after))
    found: list[Change] = []
    for first, following in zip(firsts, [*firsts[1:], None], strict=True):
        one, other = entry_for(before, first), entry_for(after, first)
        if one is None or other is None:
            raise InputError(old if one is None else new, f"has no entry for M = {first}")
        pairs = {name: (one.get(name), other.get(name)) for name in {**one, **other}}
        change = Change(
            first,
            None if following is None else following - 1,
            {name: pair for name, pair in pairs.items() if pair[0] != pair[1]},
        )
        if found and found[-1].last == first - 1 and found[-1].parameters == change.parameters:
            found[-1] = found[-1]._replace(last=change.last)
        elif change.parameters:
            found.append(change)
    return found


def markdown(old: Path, new: Path, found: Sequence[Change]) -> str:
    """The changes as a table, with a column for each parameter that differs somewhere."""
    lines = [f"### treegen diff: {code(str(old))} to {code(str(new))}", ""]
    if not found:
        return "\n".join([*lines, "**The same is launched for every M.**", ""])
    names = list(dict.fromkeys(name for change in found for name in change.parameters))
    what = f"**Other parameters are launched in {counted(len(found), 'range')} of M; elsewhere the same.**"
    lines += [f"{what} These files hold no times.", "", f"| M | {' | '.join(map(text, names))} |"]
    lines.append(f"| --- |{' --- |' * len(names)}")
    for first, last, parameters in found:
        cells = [f"{first:,}" if first == last else f"{first:,} {'on' if last is None else f'to {last:,}'}"]
        for name in names:
            cells.append(text(" -> ".join(map(shown, parameters[name]))) if name in parameters else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])
