"""Pass: keep one parameter of a tree's configs, and the splits that it depends on."""

from __future__ import annotations

from treegen.core.spec import Config
from treegen.core.tree import Leaf, Region, Tree, map_leaves
from treegen.passes.simplify import simplify


def project(tree: Tree, parameter: str, region: Region | None = None) -> Tree:
    """A tree with the same value of the parameter at every integer point of the region (default: everywhere).

    Its configs have no variant and no other parameter. Splits that do not change the parameter are dropped.
    """

    def only_parameter(leaf: Leaf) -> Leaf:
        return Leaf(Config("", ((parameter, dict(leaf.config.parameters)[parameter]),)))

    return simplify(map_leaves(tree, only_parameter), region)
