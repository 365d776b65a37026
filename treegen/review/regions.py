"""Where two trees launch different configs: boxes of the space of features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from treegen.core.spec import Config
from treegen.core.tree import Region, Tree, leaves

Box = tuple[tuple[str, tuple[int | None, int | None]], ...]


@dataclass(frozen=True)
class Moved:
    """Shapes that launched `old` and now launch `new`: the union of `regions`, none of which overlap.

    A region bounds raw and derived features as if they were independent, so it may hold no shape at all.
    """

    old: Config
    new: Config
    regions: tuple[Region, ...]


def moved(old: Tree, new: Tree) -> tuple[Moved, ...]:
    """All there is between two trees over the same features, in the order of the new tree's leaves; nothing
    for trees that launch the same for all integers."""
    found: dict[tuple[Config, Config], list[Region]] = {}
    before = list(leaves(old))
    for leaf, region in leaves(new):
        for other, there in before:
            both = _intersection(region, there)
            if both is not None and other.config != leaf.config:
                found.setdefault((other.config, leaf.config), []).append(both)
    return tuple(Moved(one, other, _merged(regions)) for (one, other), regions in found.items())


def holds(region: Region, values: Mapping[str, int]) -> bool:
    """Whether a shape lies in a region."""
    return all(
        (least is None or least <= values[name]) and (greatest is None or values[name] <= greatest)
        for name, (least, greatest) in region.items()
    )


def hull(trees: Iterable[Tree], without: Config) -> Region:
    """The smallest box that holds every leaf of the trees but those of one config."""
    boxes = [region for tree in trees for leaf, region in leaves(tree) if leaf.config != without]
    result = {}
    for feature in {name for box in boxes for name in box}:
        ends = [box.get(feature, (None, None)) for box in boxes]
        least = [low for low, _ in ends if low is not None]
        greatest = [high for _, high in ends if high is not None]
        result[feature] = (
            min(least) if len(least) == len(ends) else None,
            max(greatest) if len(greatest) == len(ends) else None,
        )
    return result


def within(region: Region, box: Region) -> Region:
    """The region without those ends that the box has, too."""
    result = {}
    for feature, (least, greatest) in region.items():
        low, high = box.get(feature, (None, None))
        result[feature] = (None if least == low else least, None if greatest == high else greatest)
    return result


def _intersection(one: Region, other: Region) -> Region | None:
    result = dict(one)
    for feature, (least, greatest) in other.items():
        low, high = result.get(feature, (None, None))
        least = low if least is None else least if low is None else max(low, least)
        greatest = high if greatest is None else greatest if high is None else min(high, greatest)
        result[feature] = (least, greatest)
    return None if any(_is_empty(*ends) for ends in result.values()) else result


def _is_empty(least: int | None, greatest: int | None) -> bool:
    return least is not None and greatest is not None and least > greatest


def _merged(regions: list[Region]) -> tuple[Region, ...]:
    """The same union of disjoint boxes, with neighbours joined as long as any two make a box."""
    boxes = [dict(region) for region in regions]
    while True:
        pair = next(
            (
                (i, j, joined)
                for i in range(len(boxes))
                for j in range(i + 1, len(boxes))
                if (joined := _joined(boxes[i], boxes[j])) is not None
            ),
            None,
        )
        if pair is None:
            return tuple(boxes)
        first, second, joined = pair
        boxes[first] = joined
        del boxes[second]


def _joined(one: Region, other: Region) -> dict[str, tuple[int | None, int | None]] | None:
    """The union of two disjoint boxes that differ in one feature, where their ranges touch."""
    unbounded = (None, None)
    names = dict.fromkeys([*one, *other])
    differ = [name for name in names if one.get(name, unbounded) != other.get(name, unbounded)]
    if len(differ) != 1:
        return None
    low, high = sorted(
        (one.get(differ[0], unbounded), other.get(differ[0], unbounded)),
        key=lambda ends: (ends[0] is not None, ends[0] or 0),
    )
    if low[1] is None or high[0] is None or low[1] + 1 != high[0]:
        return None
    result = {name: one.get(name, unbounded) for name in names}
    result[differ[0]] = (low[0], high[1])
    return {name: ends for name, ends in result.items() if ends != unbounded}
