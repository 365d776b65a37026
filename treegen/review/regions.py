"""The regions of the feature space in which two trees launch different configs."""

from __future__ import annotations

from collections.abc import Mapping

from treegen.core.interval import intersection, interval, is_empty
from treegen.core.spec import Config
from treegen.core.tree import Region, Tree, leaves, within


def tree_differences(old: Tree, new: Tree) -> dict[tuple[Config, Config], list[Region]]:
    """The shapes that an old and a new tree launch differently, by the old and the new config.

    The regions are disjoint; one may hold no shape, as it bounds derived features on their own. Nothing is
    returned for trees that launch the same config at all integers.
    """
    regions_of: dict[tuple[Config, Config], list[Region]] = {}
    old_leaves = list(leaves(old))
    for new_leaf, new_region in leaves(new):
        for old_leaf, old_region in old_leaves:
            shared = _intersection(new_region, old_region)
            if shared is not None and old_leaf.config != new_leaf.config:
                regions_of.setdefault((old_leaf.config, new_leaf.config), []).append(shared)
    return regions_of


def holds(region: Region, values: Mapping[str, int]) -> bool:
    """Return whether a region holds a shape, by those features whose values are known."""
    return all(within(values[name], *bounds) for name, bounds in region.items() if name in values)


def _intersection(one: Region, other: Region) -> Region | None:
    result: dict[str, tuple[int | None, int | None]] = {}
    for name in (*one, *other):
        ends = intersection(*(interval(*region.get(name, (None, None))) for region in (one, other)))
        if is_empty(ends):
            return None
        least, greatest = (None if isinstance(end, float) else end for end in ends)
        result[name] = least, greatest
    return result
