"""Compare two sides, module by module."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from treegen.core.table import Table
from treegen.core.tree import size
from treegen.read.table_file import read_table
from treegen.review.diff.changes import changes
from treegen.review.diff.decisions import told_apart
from treegen.review.diff.files import other_files
from treegen.review.diff.pricing import choices_priced
from treegen.review.diff.pricing_tables import find_judges
from treegen.review.diff.results import Comparison, Diff, Kind
from treegen.review.diff.serving import server
from treegen.review.diff.snapshots import Key, Snapshot


def compare(old: Snapshot, new: Snapshot, threshold: float) -> Diff:
    """All that moved between two sides. threshold: the slowdown, above 1, that is tolerated.

    Raises InputError for a table of the new side that cannot be read.
    """
    read = cache(read_table)  # several devices may share a table
    found = tuple(_comparison(old, new, key, threshold, read) for key in _keys(old, new))
    return Diff(old.label, new.label, threshold, found, other_files(old, new))


def _keys(old: Snapshot, new: Snapshot) -> list[Key]:
    """The modules to compare: of both sides, or the one that a side names."""
    if new.single:
        return list(new.modules)
    if old.single:
        return [key for key in new.modules if key in old.modules] or list(old.modules)
    return list(dict.fromkeys([*new.modules, *old.modules]))


def _comparison(
    old: Snapshot, new: Snapshot, key: Key, threshold: float, read: Callable[[Path], Table]
) -> Comparison:
    kernel, device = key
    before, after = old.modules.get(key), new.modules.get(key)
    own = Kind.ADDED if before is None else Kind.REMOVED if after is None else None
    served = None
    if before is None:
        before, served = server(old, new, key)
    elif after is None:
        after, served = server(new, old, key)
    if isinstance(after, str):
        return Comparison(
            kernel, device, own or Kind.UNREADABLE, note=f"the new module cannot be read: {after}"
        )
    if isinstance(before, str):
        note = f"the old module cannot be read: {before}"
        return Comparison(kernel, device, own or Kind.UNTIMED_PENALTY, note=note)
    if before is None or after is None:
        return Comparison(kernel, device, own or Kind.UNTIMED_PENALTY)
    judged = before.device if own is Kind.REMOVED else after.device
    judges = find_judges(old, new, after.kernel, judged, read)
    pricings = [choices_priced(judge, before, after, threshold) for judge in judges.judges]
    found = changes(told_apart(before, after), after.tree, after.kernel, pricings)
    unchanged = Kind.SAME if before.text == after.text else Kind.TEXT
    return Comparison(
        kernel,
        device,
        own or (Kind.CHANGED if found else unchanged),
        note=judges.note,
        served=served,
        judges=tuple(judge.label for judge in judges.judges),
        overall=tuple(pricing.overall() for pricing in pricings),
        changes=found,
        leaves=(size(before.tree), size(after.tree)),
        table=judges.table,
    )
