"""Pass: keep one parameter of a tree's configs, and the questions that decide it."""

from __future__ import annotations

from treegen.core.spec import Config
from treegen.core.tree import Leaf, Region, Tree, map_leaves
from treegen.passes.simplify import simplify


def project(tree: Tree, parameter: str, region: Region | None = None) -> Tree:
    """The same value of the parameter for every integer point of the region, by default for all.

    Configs have no variant and no other parameter; questions that no longer decide anything are gone.
    """

    def alone(leaf: Leaf) -> Leaf:
        return Leaf(Config("", ((parameter, dict(leaf.config.parameters)[parameter]),)))

    return simplify(map_leaves(tree, alone), region)
