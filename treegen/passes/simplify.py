"""Passes: drop splits that change no choice, align thresholds with constraints, keep one parameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Region, Split, Tree, halves, leaves, map_leaves, same_without_gaps
from treegen.passes.bounds import Bound, bounds_of


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


def align(tree: Tree, kernel: KernelSpec, device: DeviceSpec) -> Tree:
    """A tree with the same choice in every measured scenario."""
    configs = dict.fromkeys(leaf.config for leaf, _ in leaves(tree))
    return _aligned(tree, {config: bounds_of(config, kernel, device) or () for config in configs})


def _aligned(tree: Tree, bounds: Mapping[Config, Sequence[Bound]]) -> Tree:
    if isinstance(tree, Leaf):
        return tree
    threshold = tree.threshold if tree.gap is None else _threshold(tree, tree.gap, bounds)
    return Split(tree.feature, threshold, _aligned(tree.low, bounds), _aligned(tree.high, bounds), tree.gap)


def _threshold(split: Split, gap: tuple[int, int], bounds: Mapping[Config, Sequence[Bound]]) -> int:
    """The least upper bound of the low side's configs, else the greatest lower bound of the high side's."""

    def on_feature(side: Tree) -> list[Bound]:
        bounds_found = (bound for leaf, _ in leaves(side) for bound in bounds[leaf.config])
        return [bound for bound in bounds_found if bound.feature == split.feature]

    ends = [bound.greatest for bound in on_feature(split.low) if bound.greatest is not None]
    starts = [bound.least - 1 for bound in on_feature(split.high) if bound.least is not None]
    ends = [end for end in ends if gap[0] <= end < split.threshold]
    starts = [start for start in starts if split.threshold < start < gap[1]]
    return min(ends) if ends else max(starts, default=split.threshold)


def project(tree: Tree, parameter: str, region: Region | None = None) -> Tree:
    """A tree with the same value of the parameter at every integer point of the region (default: everywhere).

    Its configs have no variant and no other parameter. Splits that do not change the parameter are dropped.
    """

    def only_parameter(leaf: Leaf) -> Leaf:
        return Leaf(Config("", ((parameter, dict(leaf.config.parameters)[parameter]),)))

    return simplify(map_leaves(tree, only_parameter), region)
