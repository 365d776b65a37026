"""`tree_differences` gives for every point the config that two trees launch there."""

from __future__ import annotations

from itertools import chain, product

from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import FEATURES, examples, near_thresholds, trees

from treegen.core.tree import Tree, choose
from treegen.review.regions import holds, tree_differences

small = trees(st.integers(0, 3))
POINTS = [dict(zip(FEATURES, point, strict=True)) for point in product(range(-1, 6), repeat=len(FEATURES))]


@examples(150)
@given(small, small)
def test_every_point_that_changed_lies_in_one_region_of_its_pair(old: Tree, new: Tree) -> None:
    found = tree_differences(old, new)
    for point in POINTS:
        before, after = choose(old, point), choose(new, point)
        pairs = [pair for pair, regions in found.items() for region in regions if holds(region, point)]
        assert pairs == ([] if before == after else [(before, after)])
    assert all(any(holds(region, point) for point in POINTS) for region in chain(*found.values()))


@examples(40)
@given(st.data(), trees(), trees())
def test_large_and_negative_thresholds_at_their_ends(data: st.DataObject, old: Tree, new: Tree) -> None:
    point = {
        name: data.draw(st.sampled_from(near_thresholds(old, name) + near_thresholds(new, name)))
        for name in FEATURES
    }
    inside = sum(holds(region, point) for region in chain(*tree_differences(old, new).values()))
    assert inside == (choose(old, point) != choose(new, point))
