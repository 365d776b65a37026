"""The leaves' regions partition the space, and `choose` goes where the regions say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import CONFIGS, examples, points, points_near, trees

from treegen.core.tree import Leaf, Region, Split, Tree, choose, depth, leaves, map_leaves, size


def _inside(region: Region, point: dict[str, int]) -> bool:
    return all(
        (least is None or least <= point[name]) and (greatest is None or point[name] <= greatest)
        for name, (least, greatest) in region.items()
    )


@examples(200)
@given(st.data(), trees())
def test_every_point_lies_in_exactly_one_region_and_gets_its_config(data: st.DataObject, tree: Tree) -> None:
    point = data.draw(st.one_of(points, points_near(tree)))
    (found,) = [leaf for leaf, region in leaves(tree) if _inside(region, point)]
    assert found.config == choose(tree, point)


def test_regions_are_bounds_low_side_first() -> None:
    a, b, c = (Leaf(config) for config in CONFIGS[:3])
    tree = Split("rows", 10, Split("rows", 4, a, b), Split("heads", -1, b, c))
    assert list(leaves(tree)) == [
        (a, {"rows": (None, 4)}),
        (b, {"rows": (5, 10)}),
        (b, {"rows": (11, None), "heads": (None, -1)}),
        (c, {"rows": (11, None), "heads": (0, None)}),
    ]


def test_a_threshold_belongs_to_the_low_side() -> None:
    low, high = CONFIGS[:2]
    tree = Split("rows", 10, Leaf(low), Leaf(high))
    assert [choose(tree, {"rows": rows}) for rows in (9, 10, 11)] == [low, low, high]


@examples(50)
@given(trees())
def test_depth_and_size(tree: Tree) -> None:
    assert size(tree) == len(list(leaves(tree)))
    assert depth(tree) == max(0, *(_path_lengths(tree)))


def _path_lengths(tree: Tree) -> list[int]:
    if isinstance(tree, Leaf):
        return [0]
    return [1 + length for side in (tree.low, tree.high) for length in _path_lengths(side)]


@examples(50)
@given(trees(), points)
def test_map_leaves_changes_leaves_only(tree: Tree, point: dict[str, int]) -> None:
    swapped = {config: CONFIGS[(i + 1) % len(CONFIGS)] for i, config in enumerate(CONFIGS)}
    changed = map_leaves(tree, lambda leaf: Leaf(swapped[leaf.config]))
    assert choose(changed, point) == swapped[choose(tree, point)]
    assert map_leaves(changed, lambda leaf: leaf) == changed
