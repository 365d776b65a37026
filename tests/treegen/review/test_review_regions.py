"""`tree_differences` gives for every point the config that two trees launch there."""

from __future__ import annotations

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import CONFIGS, FEATURES, examples, near_thresholds, trees

from treegen.core.tree import Leaf, Region, Split, Tree, choose, leaves
from treegen.review.regions import holds, hull, tree_differences, without_bounds_of

small = trees(st.integers(0, 3))
POINTS = [dict(zip(FEATURES, point, strict=True)) for point in product(range(-1, 6), repeat=len(FEATURES))]
bounds = st.one_of(st.none(), st.integers(0, 4))
boxes = st.dictionaries(st.sampled_from(FEATURES), st.tuples(bounds, bounds))


@examples(150)
@given(small, small)
def test_every_point_that_changed_lies_in_one_region_of_its_pair(old: Tree, new: Tree) -> None:
    found = tree_differences(old, new)
    for point in POINTS:
        before, after = choose(old, point), choose(new, point)
        pairs = [(one.old, one.new) for one in found for region in one.regions if holds(region, point)]
        assert pairs == ([] if before == after else [(before, after)])
    assert len({(one.old, one.new) for one in found}) == len(found)
    for one in found:
        for region in one.regions:
            assert any(holds(region, point) for point in POINTS)


def test_regions_that_another_split_cuts_are_joined() -> None:
    one, other, third = (Leaf(config) for config in CONFIGS[:3])
    cut = Split(
        "heads", 7, Split("rows", 4, one, other), Split("rows", 4, one, Split("rows", 9, other, third))
    )
    (found,) = (pair for pair in tree_differences(one, cut) if pair.new == other.config)
    assert list(found.regions) == [
        {"heads": (None, 7), "rows": (5, None)},
        {"heads": (8, None), "rows": (5, 9)},
    ]
    assert [pair.new for pair in tree_differences(one, cut)] == [
        other.config,
        third.config,
    ]  # as the new tree has them
    whole = Split("heads", 7, Split("rows", 4, one, other), Split("rows", 4, one, other))
    assert tree_differences(one, whole)[0].regions == ({"rows": (5, None)},)


@examples(60)
@given(small, small)
def test_no_two_regions_of_a_pair_could_be_one_box(old: Tree, new: Tree) -> None:
    for one in tree_differences(old, new):
        for first, second in combinations(one.regions, 2):
            names = {*first, *second}
            differ = [n for n in names if first.get(n, (None, None)) != second.get(n, (None, None))]
            if len(differ) == 1:
                (low, high) = (first[differ[0]], second[differ[0]])
                assert None in (low[1], high[0]) or low[1] + 1 != high[0]
                assert None in (high[1], low[0]) or high[1] + 1 != low[0]


@examples(80)
@given(st.lists(small, min_size=1, max_size=2), st.sampled_from(CONFIGS))
def test_the_hull_holds_all_other_leaves_and_no_smaller_box_does(found: list[Tree], without: object) -> None:
    box = hull(found, without)
    regions = [region for tree in found for leaf, region in leaves(tree) if leaf.config != without]
    for region in regions:
        for name, (least, greatest) in box.items():
            low, high = region.get(name, (None, None))
            assert least is None or (low is not None and low >= least)
            assert greatest is None or (high is not None and high <= greatest)
    for name, ends in box.items():
        for side, end in enumerate(ends):
            assert end is None or any(region[name][side] == end for region in regions)


@examples(200)
@given(boxes, boxes, st.sampled_from(POINTS))
def test_inside_the_box_the_shorter_region_holds_the_same_points(
    region: Region, box: Region, point: dict[str, int]
) -> None:
    if holds(box, point):
        assert holds(without_bounds_of(box, region), point) == holds(region, point)


@examples(40)
@given(st.data(), trees(), trees())
def test_large_and_negative_thresholds_at_their_ends(data: st.DataObject, old: Tree, new: Tree) -> None:
    point = {
        name: data.draw(st.sampled_from(near_thresholds(old, name) + near_thresholds(new, name)))
        for name in FEATURES
    }
    regions = [region for one in tree_differences(old, new) for region in one.regions]
    inside = sum(holds(region, point) for region in regions)
    assert inside == (choose(old, point) != choose(new, point))
