"""The one intermediate representation: a binary decision tree over integer features.

Fitting makes it, passes map it to itself, emitters and reviews read it. Everything is frozen.
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
    """`feature <= threshold` goes to `low`, everything else to `high`.

    gap: the measured values (below, above) between which the threshold may move without changing where
    any measured scenario goes; None for a split that comes from a constraint, whose threshold is exact.
    """

    feature: str
    threshold: int
    low: Tree
    high: Tree
    gap: tuple[int, int] | None = None


Tree = Leaf | Split

Region = Mapping[str, tuple[int | None, int | None]]
"""Bounds (least, greatest) of the features that splits on the way constrain; None is unbounded."""


def choose(tree: Tree, values: Mapping[str, int]) -> Config:
    """The config a tree gives for known feature values."""
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
    least, greatest = region.get(split.feature, (None, None))
    low_top = split.threshold if greatest is None else min(greatest, split.threshold)
    high_bottom = split.threshold + 1 if least is None else max(least, split.threshold + 1)
    return {**region, split.feature: (least, low_top)}, {**region, split.feature: (high_bottom, greatest)}


def map_leaves(tree: Tree, change: Callable[[Leaf], Tree]) -> Tree:
    if isinstance(tree, Leaf):
        return change(tree)
    low, high = map_leaves(tree.low, change), map_leaves(tree.high, change)
    return Split(tree.feature, tree.threshold, low, high, tree.gap)


def depth(tree: Tree) -> int:
    return 0 if isinstance(tree, Leaf) else 1 + max(depth(tree.low), depth(tree.high))


def size(tree: Tree) -> int:
    """The number of leaves."""
    return 1 if isinstance(tree, Leaf) else size(tree.low) + size(tree.high)


def asked(tree: Tree) -> Iterator[str]:
    """The feature of every split, the root's first."""
    if isinstance(tree, Split):
        yield tree.feature
        yield from asked(tree.low)
        yield from asked(tree.high)


def same(one: Tree, other: Tree) -> bool:
    """Whether two trees ask and launch the same, whatever their gaps: they are printed alike."""
    if isinstance(one, Leaf) or isinstance(other, Leaf):
        return one == other
    return (
        (one.feature, one.threshold) == (other.feature, other.threshold)
        and same(one.low, other.low)
        and same(one.high, other.high)
    )
