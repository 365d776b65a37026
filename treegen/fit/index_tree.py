"""The trees that the search works on: numbered splits and numbered configs."""

from __future__ import annotations

IndexTree = int | tuple[int, "IndexTree", "IndexTree"]
"""A leaf (a column of `TrainingSet.loss`), or (row of `TrainingSet.is_low`, low side, high side)."""

NodePath = tuple[int, ...]
"""The way from the root to a node: 1 for a low side, 2 for a high side, so that each step indexes a tree."""


def count_leaves(tree: IndexTree) -> int:
    return count_leaves(tree[1]) + count_leaves(tree[2]) if isinstance(tree, tuple) else 1


def height(tree: IndexTree) -> int:
    """The number of splits on the longest way to a leaf."""
    return 1 + max(height(tree[1]), height(tree[2])) if isinstance(tree, tuple) else 0


def replaced(tree: IndexTree, path: NodePath, subtree: IndexTree) -> IndexTree:
    """The tree with another subtree at the end of a path."""
    if not path:
        return subtree
    assert isinstance(tree, tuple)
    split, low, high = tree
    if path[0] == 1:
        return split, replaced(low, path[1:], subtree), high
    return split, low, replaced(high, path[1:], subtree)
