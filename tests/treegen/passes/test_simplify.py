"""simplify: the same choice at every integer point, with no split that decides nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import CONFIGS, examples, points, points_near, trees

from treegen.core.tree import Leaf, Split, Tree, choose, depth, leaves, size
from treegen.passes.simplify import simplify

A, B, C = (Leaf(config) for config in CONFIGS[:3])


@examples(300)
@given(st.data(), trees(st.integers(-3, 3)))
def test_every_point_keeps_its_choice(data: st.DataObject, tree: Tree) -> None:
    point = data.draw(st.one_of(points, points_near(tree)))
    assert choose(simplify(tree), point) == choose(tree, point)


@examples(300)
@given(trees(st.integers(-3, 3)))
def test_no_leaf_is_out_of_reach_and_no_split_has_equal_sides(tree: Tree) -> None:
    result = simplify(tree)
    for _, region in leaves(result):
        assert all(low is None or high is None or low <= high for low, high in region.values())
    pending = [result]
    while pending:
        node = pending.pop()
        if isinstance(node, Split):
            assert node.low != node.high
            pending += [node.low, node.high]
    assert size(result) <= size(tree) and depth(result) <= depth(tree)
    assert simplify(result) == result


def test_only_splits_that_are_decided_above_go() -> None:
    low = Split("rows", 5, Split("rows", 4, A, B), C)
    high = Split("rows", 5, C, Split("rows", 6, A, B))
    assert (simplify(low), simplify(high)) == (low, high)
    assert simplify(Split("rows", 1, Split("heads", 2, A, A), Split("columns", 3, A, A))) == A
    assert simplify(Split("rows", 5, Split("rows", 7, A, B), C)) == Split("rows", 5, A, C)
    assert simplify(Split("rows", 5, C, Split("rows", 5, A, B))) == Split("rows", 5, C, B)


def test_equal_sides_merge_even_when_measured_differently() -> None:
    one, other = Split("heads", 2, A, B, (2, 4)), Split("heads", 2, A, B, (2, 9))
    assert simplify(Split("rows", 1, one, other)) == one


def test_sides_that_differ_only_in_reachable_parts_stay_apart() -> None:
    for other in (
        Split("heads", 3, A, B),
        Split("columns", 2, A, B),
        Split("heads", 2, A, C),
        Split("heads", 2, C, B),
    ):
        tree = Split("rows", 1, Split("heads", 2, A, B), other)
        assert simplify(tree) == tree
