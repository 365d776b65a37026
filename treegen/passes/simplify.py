"""Pass: drop splits that change no choice."""

from __future__ import annotations

from treegen.core.tree import Leaf, Region, Split, Tree, halves, same_without_gaps


def simplify(tree: Tree, region: Region | None = None) -> Tree:
    """A tree with the same choice at every integer point of the region (default: everywhere).

    No split of it has two equal sides or is decided by the region and the splits above.
    """
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
    if same_without_gaps(low, high):
        return low
    return Split(tree.feature, tree.threshold, low, high, tree.gap)
