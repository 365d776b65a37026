"""Pass: keep one parameter of a tree's configs, and the questions that decide it."""

from __future__ import annotations

from treegen.passes.simplify import simplify
from treegen.spec import Config
from treegen.tree import Leaf, Region, Tree, map_leaves


def project(tree: Tree, parameter: str, region: Region | None = None) -> Tree:
    """The same value of the parameter for every integer point of the region, by default for all.

    Configs have no variant and no other parameter; questions that no longer decide anything are gone.
    """

    def alone(leaf: Leaf) -> Leaf:
        return Leaf(Config("", ((parameter, dict(leaf.config.parameters)[parameter]),)))

    return simplify(map_leaves(tree, alone), region)
