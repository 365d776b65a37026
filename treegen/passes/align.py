"""Pass: move thresholds, within their gaps, to where a constraint ends what a side may launch.

No measured scenario notices. What lies between then gets the other side's config, which was tuned there, and
not the fallback behind a guard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree, leaves
from treegen.passes.guards import Bound, UnprovableConstraint, bounds_of


def align(tree: Tree, kernel: KernelSpec, device: DeviceSpec) -> Tree:
    """The same decisions on every measured scenario."""
    configs = dict.fromkeys(leaf.config for leaf, _ in leaves(tree))
    try:
        return _aligned(tree, {config: bounds_of(config, kernel, device) or () for config in configs})
    except UnprovableConstraint:  # `guard` says so, where a module is made
        return tree


def _aligned(tree: Tree, bounds: Mapping[Config, Sequence[Bound]]) -> Tree:
    if isinstance(tree, Leaf):
        return tree
    threshold = tree.threshold if tree.gap is None else _threshold(tree, tree.gap, bounds)
    return Split(tree.feature, threshold, _aligned(tree.low, bounds), _aligned(tree.high, bounds), tree.gap)


def _threshold(split: Split, gap: tuple[int, int], bounds: Mapping[Config, Sequence[Bound]]) -> int:
    """The least end of what the low side's configs may do, else the greatest start of the high side's."""
    ends = [
        bound.greatest
        for leaf, _ in leaves(split.low)
        for bound in bounds[leaf.config]
        if bound.feature == split.feature
        and bound.greatest is not None
        and gap[0] <= bound.greatest < split.threshold
    ]
    starts = [
        bound.least - 1
        for leaf, _ in leaves(split.high)
        for bound in bounds[leaf.config]
        if bound.feature == split.feature
        and bound.least is not None
        and split.threshold < bound.least - 1 < gap[1]
    ]
    return min(ends) if ends else max(starts) if starts else split.threshold
