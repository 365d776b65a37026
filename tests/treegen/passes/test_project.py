"""project: one parameter of the configs, and the splits that decide it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import CONFIGS, FEATURES, examples, points, points_near, trees

from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split, Tree, choose, leaves, size
from treegen.passes.simplify import project, simplify

SHARED = tuple(
    Config("plain", (("block", block), ("warps", warps))) for block in (16, 64) for warps in (1, 2, 4)
)
"""Configs of which several share the value of a parameter."""

shared_trees: st.SearchStrategy[Tree] = st.recursive(
    st.sampled_from(SHARED).map(Leaf),
    lambda inner: st.builds(Split, st.sampled_from(FEATURES), st.integers(-3, 3), inner, inner),
    max_leaves=12,
)


@examples(300)
@given(st.data(), st.one_of(trees(st.integers(-3, 3)), shared_trees), st.sampled_from(["block", "warps"]))
def test_every_point_keeps_its_value(data: st.DataObject, tree: Tree, parameter: str) -> None:
    point = data.draw(st.one_of(points, points_near(tree)))
    expected = dict(choose(tree, point).parameters)[parameter]
    result = project(tree, parameter)
    assert choose(result, point).parameters == ((parameter, expected),)
    assert size(result) <= size(tree) and simplify(result) == result


@examples(300)
@given(st.data(), shared_trees)
def test_splits_that_a_region_decides_are_gone(data: st.DataObject, tree: Tree) -> None:
    region = dict.fromkeys(FEATURES, (0, 2))
    result = project(tree, "warps", region)
    point = {name: data.draw(st.integers(0, 2)) for name in FEATURES}
    assert choose(result, point).parameters[0][1] == dict(choose(tree, point).parameters)["warps"]
    for _, reached in leaves(result, region):
        assert all(low is not None and high is not None and low <= high for low, high in reached.values())


def test_what_decides_only_other_parameters_is_gone() -> None:
    one, other, third = (Leaf(config) for config in CONFIGS[:3])
    wide = Leaf(Config("plain", (("block", 8), ("warps", 9))))
    assert wide.config.parameters[0] == one.config.parameters[0]
    tree = Split("rows", 5, Split("columns", 1, one, wide), Split("heads", 2, other, third))
    expected = [Leaf(Config("", (("block", 8 << k),))) for k in range(3)]
    assert project(tree, "block") == Split("rows", 5, expected[0], Split("heads", 2, *expected[1:]))
