"""The intermediate representation: a binary decision tree over integer features.

The fit makes a tree, passes map trees to trees, emitters and reviews read them. Everything is frozen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from treegen.core.spec import Config


@dataclass(frozen=True)
class Leaf:
    config: Config


@dataclass(frozen=True)
class Split:
    """A question `feature <= threshold`.

    gap: the neighbouring measured values (below, above) between which the threshold lies. Within them it can
    move without changing the side of any measured scenario. None if the split comes from a constraint: then
    the threshold is exact.
    """

    feature: str
    threshold: int
    low: Tree  # where feature <= threshold
    high: Tree  # elsewhere
    gap: tuple[int, int] | None = None


Tree = Leaf | Split

Region = Mapping[str, tuple[int | None, int | None]]
"""Bounds (least, greatest) by feature; None is unbounded, and so is a feature that is not there."""


def within(value: int, least: int | None, greatest: int | None) -> bool:
    """Return whether a value lies between bounds, where None is unbounded."""
    return (least is None or least <= value) and (greatest is None or value <= greatest)


def choose(tree: Tree, values: Mapping[str, int]) -> Config:
    """The config of the leaf that the feature values lead to."""
    while isinstance(tree, Split):
        tree = tree.low if values[tree.feature] <= tree.threshold else tree.high
    return tree.config


def leaves(tree: Tree, region: Region | None = None) -> Iterator[tuple[Leaf, Region]]:
    """Every leaf, low side first, with the region of feature values that leads there."""
    region = region or {}
    if isinstance(tree, Leaf):
        yield tree, region
        return
    low, high = halves(tree, region)
    yield from leaves(tree.low, low)
    yield from leaves(tree.high, high)


def halves(split: Split, region: Region) -> tuple[Region, Region]:
    """The regions of a split's low and high side."""
    return cut(region, split.feature, split.threshold)


def cut(region: Region, feature: str, threshold: int) -> tuple[Region, Region]:
    """The parts of a region up to a threshold of a feature, and above it."""
    least, greatest = region.get(feature, (None, None))
    low_top = threshold if greatest is None else min(greatest, threshold)
    high_bottom = threshold + 1 if least is None else max(least, threshold + 1)
    return {**region, feature: (least, low_top)}, {**region, feature: (high_bottom, greatest)}


def map_leaves(tree: Tree, change: Callable[[Leaf], Tree]) -> Tree:
    """The tree with `change(leaf)` in the place of each leaf."""
    if isinstance(tree, Leaf):
        return change(tree)
    low, high = map_leaves(tree.low, change), map_leaves(tree.high, change)
    return Split(tree.feature, tree.threshold, low, high, tree.gap)


def depth(tree: Tree) -> int:
    """The number of splits on the longest way to a leaf."""
    return 0 if isinstance(tree, Leaf) else 1 + max(depth(tree.low), depth(tree.high))


def size(tree: Tree) -> int:
    """The number of leaves."""
    return 1 if isinstance(tree, Leaf) else size(tree.low) + size(tree.high)


def split_features(tree: Tree) -> Iterator[str]:
    """The feature of every split, the root's first."""
    if isinstance(tree, Split):
        yield tree.feature
        yield from split_features(tree.low)
        yield from split_features(tree.high)


def same_without_gaps(one: Tree, other: Tree) -> bool:
    """Return whether two trees are equal except for their gaps, so that they are printed alike."""
    if isinstance(one, Leaf) or isinstance(other, Leaf):
        return one == other
    return (
        (one.feature, one.threshold) == (other.feature, other.threshold)
        and same_without_gaps(one.low, other.low)
        and same_without_gaps(one.high, other.high)
    )
