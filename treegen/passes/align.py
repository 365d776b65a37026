"""Pass: move thresholds, within their gaps, to where a constraint begins to exclude a config of one side.

No measured scenario changes its side. Shapes between the two thresholds get the other side's config, which
was tuned there, instead of a next config beyond a guard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.core.tree import Leaf, Split, Tree, leaves
from treegen.passes.bounds import Bound, bounds_of


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
