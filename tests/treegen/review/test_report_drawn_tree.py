"""Trees in words, with guards set apart and scenarios counted."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from treegen_builders import problem
from treegen_strategies import examples

from treegen.core.problem import Problem
from treegen.core.tree import Leaf, Split, Tree, depth, size
from treegen.crossval.choices import decisions_of, score_decisions
from treegen.review.report.drawn_tree import DrawnNode, DrawnTree, drawn_tree

WORDS = {"words": {"area": "cells", "heads": "query heads"}, "regimes": {"flat": "rows <= 1"}}


def _drawn(tree: Tree, measured: Problem) -> DrawnTree:
    return drawn_tree(tree, measured, score_decisions(decisions_of(tree, measured), measured).cost)


def _lines(node: DrawnNode, indent: int = 0) -> list[str]:
    """The drawing as text: words, guards, config and number of scenarios."""
    text = "  " * indent + node.words + (f" ({'; '.join(node.guards)})" if node.guards else "")
    if node.leaf is not None:
        return [f"{text} -> {dict(node.leaf.config.parameters)['block']}: {len(node.leaf.cost)}"]
    return [text, *(line for side in node.sides for line in _lines(side, indent + 1))]


def test_guards_are_set_apart_from_fitted_splits(tmp_path: Path) -> None:
    measured = problem(tmp_path, WORDS)
    narrow, fallback, wide = map(Leaf, measured.configs)
    inner = Split("columns", 8, Split("heads", 9, narrow, fallback), wide)
    tree = Split("heads", 1, fallback, Split("heads", 64, Split("rows", 1, inner, wide), fallback))
    assert fallback.config == measured.kernel.fallback
    found = _drawn(tree, measured)
    assert _lines(found.root) == [
        " (query heads up to 1 or over 64: PLAIN_B64_W4)",
        "  flat",
        "    columns up to 8 (query heads over 9: PLAIN_B64_W4) -> 16: 2",
        "    columns over 8 -> 128: 1",
        "  rows over 1 -> 128: 6",
    ]
    assert (found.depth, found.leaves) == (depth(tree), size(tree)) == (5, 6)


def test_a_fallback_that_scenarios_reach_is_a_leaf(tmp_path: Path) -> None:
    measured = problem(tmp_path, WORDS)
    narrow, fallback, _ = map(Leaf, measured.configs)
    found = _drawn(Split("area", 64, narrow, fallback), measured)
    assert _lines(found.root) == ["", "  cells up to 64 -> 16: 6", "  cells over 64 -> 64: 3"]


def test_a_feature_that_the_table_lacks_may_guard_what_no_scenario_reaches(tmp_path: Path) -> None:
    measured = problem(tmp_path)
    narrow, _, wide = map(Leaf, measured.configs)
    tree = Split("rows", 0, Split("unknown", 3, narrow, wide), narrow)
    assert _lines(_drawn(tree, measured).root)[1:] == [
        "  rows up to 0",
        "    unknown up to 3 -> 16: 0",
        "    unknown over 3 -> 128: 0",
        "  rows over 0 -> 16: 9",
    ]


def _trees(measured: Problem) -> st.SearchStrategy[Tree]:
    leaf = st.sampled_from(measured.configs).map(Leaf)
    names, bounds = st.sampled_from(measured.names), st.integers(0, 70)
    return st.recursive(leaf, lambda inner: st.builds(Split, names, bounds, inner, inner), max_leaves=8)


def test_leaves_hold_each_scenario_once_with_what_is_launched_there(tmp_path: Path) -> None:
    measured = problem(tmp_path)

    @given(_trees(measured))
    @examples(60)
    def check(tree: Tree) -> None:
        decisions = decisions_of(tree, measured)
        cost = score_decisions(decisions, measured).cost
        expected = sorted(zip((config.parameters for config in decisions), cost.tolist(), strict=True))
        found = [
            (leaf.config.parameters, c) for leaf in _drawn(tree, measured).all_leaves() for c in leaf.cost
        ]
        assert sorted(found) == expected

    check()
