"""Compare two sides, module by module."""

from __future__ import annotations

from treegen.diff.changes import changes
from treegen.diff.decisions import told_apart
from treegen.diff.files import other_files
from treegen.diff.judges import find_judges
from treegen.diff.pricing import choices_priced
from treegen.diff.results import Comparison, Diff, Kind
from treegen.diff.serving import server
from treegen.diff.sides import Key, Side
from treegen.tree import size


def compare(old: Side, new: Side, threshold: float) -> Diff:
    """All that moved between two sides. threshold: the slowdown, above 1, that is tolerated.

    Raises InputError for a table of the new side that cannot be read.
    """
    found = tuple(_comparison(old, new, key, threshold) for key in _keys(old, new))
    return Diff(old.label, new.label, threshold, found, other_files(old, new))


def _keys(old: Side, new: Side) -> list[Key]:
    """The modules to compare: of both sides, or the one that a side names."""
    if new.single:
        return list(new.modules)
    if old.single:
        return [key for key in new.modules if key in old.modules] or list(old.modules)
    return list(dict.fromkeys([*new.modules, *old.modules]))


def _comparison(old: Side, new: Side, key: Key, threshold: float) -> Comparison:
    kernel, device = key
    after = new.modules.get(key)
    before, served = server(old, new, key)
    if after is None:
        return Comparison(kernel, device, Kind.REMOVED)
    if isinstance(after, str):
        return Comparison(kernel, device, Kind.UNREADABLE, note=after)
    if before is None:
        return Comparison(kernel, device, Kind.ADDED)
    if isinstance(before, str):
        return Comparison(kernel, device, Kind.ADDED, note=f"the old module cannot be read: {before}")
    judges = find_judges(old, new, after)
    pricings = [choices_priced(judge, before, after, threshold) for judge in judges.judges]
    found = changes(told_apart(before, after), after.tree, after.kernel, pricings)
    unchanged = Kind.SAME if before.text == after.text else Kind.TEXT
    return Comparison(
        kernel,
        device,
        Kind.ADDED if served else Kind.CHANGED if found else unchanged,
        note=judges.note,
        served=served,
        judges=tuple(judge.label for judge in judges.judges),
        overall=tuple(pricing.overall() for pricing in pricings),
        changes=found,
        leaves=(size(before.tree), size(after.tree)),
        table=judges.table,
    )
