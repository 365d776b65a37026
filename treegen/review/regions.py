"""The regions of the feature space in which two trees launch different configs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations

from treegen.core.interval import Interval, intersection, interval, is_empty
from treegen.core.spec import Config
from treegen.core.tree import Region, Tree, leaves, within

_Bounds = tuple[int | None, int | None]
_UNBOUNDED: _Bounds = (None, None)


@dataclass(frozen=True)
class TreeDifference:
    """The shapes that one tree launches with `old` and another tree launches with `new`."""

    old: Config
    new: Config
    regions: tuple[Region, ...]  # disjoint; one may hold no shape, as it bounds derived features on their own


def tree_differences(old: Tree, new: Tree) -> tuple[TreeDifference, ...]:
    """Every difference of two trees over the same features, in the order of the new tree's leaves.

    Nothing is returned for trees that launch the same config at all integers.
    """
    regions_of: dict[tuple[Config, Config], list[Region]] = {}
    old_leaves = list(leaves(old))
    for new_leaf, new_region in leaves(new):
        for old_leaf, old_region in old_leaves:
            shared = _intersection(new_region, old_region)
            if shared is not None and old_leaf.config != new_leaf.config:
                regions_of.setdefault((old_leaf.config, new_leaf.config), []).append(shared)
    return tuple(TreeDifference(*configs, _merged(regions)) for configs, regions in regions_of.items())


def holds(region: Region, values: Mapping[str, int]) -> bool:
    """Return whether a region holds a shape, by those features whose values are known."""
    return all(within(values[name], *bounds) for name, bounds in region.items() if name in values)


def hull(trees: Iterable[Tree], without: Config) -> Region:
    """The smallest box that holds every leaf of the trees, except the leaves with the config `without`."""
    boxes = [region for tree in trees for leaf, region in leaves(tree) if leaf.config != without]
    result = {}
    for feature in {name for box in boxes for name in box}:
        lows, highs = zip(*(interval(*box.get(feature, _UNBOUNDED)) for box in boxes), strict=True)
        result[feature] = _bounds((min(lows), max(highs)))
    return result


def without_bounds_of(box: Region, region: Region) -> Region:
    """The region without those bounds that equal the box's."""
    result = {}
    for feature, (least, greatest) in region.items():
        low, high = box.get(feature, _UNBOUNDED)
        result[feature] = (None if least == low else least, None if greatest == high else greatest)
    return result


def _bounds(ends: Interval) -> _Bounds:
    least, greatest = (None if isinstance(end, float) else end for end in ends)
    return least, greatest


def _intersection(one: Region, other: Region) -> Region | None:
    ends = {
        name: intersection(interval(*one.get(name, _UNBOUNDED)), interval(*other.get(name, _UNBOUNDED)))
        for name in (*one, *other)
    }
    return None if any(map(is_empty, ends.values())) else {name: _bounds(pair) for name, pair in ends.items()}


def _merged(regions: list[Region]) -> tuple[Region, ...]:
    """The same union of disjoint boxes; two boxes are joined while their union is a box."""
    boxes = list(regions)
    while True:
        for one, other in combinations(boxes, 2):
            joined = _joined(one, other)
            if joined is not None:
                boxes[boxes.index(one)] = joined
                boxes.remove(other)
                break
        else:
            return tuple(boxes)


def _joined(one: Region, other: Region) -> Region | None:
    """The union of two disjoint boxes that differ in one feature and touch there; None for other boxes."""
    names = dict.fromkeys([*one, *other])
    differ = [name for name in names if one.get(name, _UNBOUNDED) != other.get(name, _UNBOUNDED)]
    if len(differ) != 1:
        return None
    low, high = sorted(interval(*box.get(differ[0], _UNBOUNDED)) for box in (one, other))
    if low[1] + 1 != high[0]:
        return None
    result = {**one, differ[0]: _bounds((low[0], high[1]))}
    return {name: bounds for name, bounds in result.items() if bounds != _UNBOUNDED}
