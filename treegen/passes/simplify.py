"""Pass: drop splits that decide nothing."""

from __future__ import annotations

from treegen.tree import Leaf, Region, Split, Tree, halves


def simplify(tree: Tree, region: Region | None = None) -> Tree:
    """The same choice for every integer point, with no split that is already decided and no equal sides."""
    if isinstance(tree, Leaf):
        return tree
    region = region or {}
    least, greatest = region.get(tree.feature, (None, None))
    if greatest is not None and greatest <= tree.threshold:
        return simplify(tree.low, region)
    if least is not None and least > tree.threshold:
        return simplify(tree.high, region)
    low_region, high_region = halves(tree, region)
    low, high = simplify(tree.low, low_region), simplify(tree.high, high_region)
    if _same(low, high):
        return low
    return Split(tree.feature, tree.threshold, low, high, tree.gap)


def _same(one: Tree, other: Tree) -> bool:
    """Whether two trees decide alike, whatever their gaps."""
    if isinstance(one, Leaf) or isinstance(other, Leaf):
        return one == other
    return (
        (one.feature, one.threshold) == (other.feature, other.threshold)
        and _same(one.low, other.low)
        and _same(one.high, other.high)
    )
