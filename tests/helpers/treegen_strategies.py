"""Hypothesis strategies: integers as an attacker passes them, expressions and trees."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from treegen.core.expr import Call, Expression, Name, Number
from treegen.core.spec import Config
from treegen.core.tree import Leaf, Split, Tree

FEATURES = ("rows", "columns", "heads")
CONFIGS = tuple(Config("plain", (("block", 1 << k), ("warps", k))) for k in range(3, 8))
FALLBACK = Config("plain", (("block", 64), ("warps", 1)))


def examples(count: int) -> settings:
    """Deterministic, so that the suite never fails on one machine only; raise `count` to explore."""
    return settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )


any_integer = st.one_of(
    st.integers(-20, 200),
    st.integers(-(10**6), 10**6),
    st.sampled_from([10**18, -(10**18), 2**62, -(2**62), 2**63, -(2**63) - 1, 10**30]),
    st.integers(),
)

points = st.fixed_dictionaries(dict.fromkeys(FEATURES, any_integer))


def expressions(*, power_of_2: bool = True) -> st.SearchStrategy[Expression]:
    """Expressions as `parse` can return them.

    Their Python text holds no next_power_of_2, so that a round trip through `parse` is possible.
    """
    numbers = st.integers(-(10**6), 10**6).map(Number)
    leaves = st.one_of(numbers, st.sampled_from(FEATURES).map(Name))

    def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        positive = st.one_of(
            st.integers(1, 10**6).map(Number),
            st.tuples(st.integers(1, 9).map(Number), inner).map(lambda pair: Call("max", pair)),
        )
        kinds = [
            st.builds(lambda f, a, b: Call(f, (a, b)), st.sampled_from("+-*"), inner, inner),
            st.builds(
                lambda symbol, a, b: Call(symbol, (a, b)), st.sampled_from(["//", "%"]), inner, positive
            ),
            st.builds(
                lambda f, a: Call(f, tuple(a)),
                st.sampled_from(["min", "max"]),
                st.lists(inner, min_size=2, max_size=3),
            ),
        ]
        if power_of_2:
            kinds.append(st.builds(lambda a: Call("next_power_of_2", (a,)), inner))
        return st.one_of(kinds)

    return st.recursive(leaves, larger, max_leaves=8)


def trees(thresholds: st.SearchStrategy[int] = any_integer) -> st.SearchStrategy[Tree]:
    """Trees over FEATURES whose leaves hold CONFIGS; thresholds may contradict each other."""
    return st.recursive(
        st.sampled_from(CONFIGS).map(Leaf),
        lambda inner: st.builds(Split, st.sampled_from(FEATURES), thresholds, inner, inner),
        max_leaves=12,
    )


@st.composite
def points_near(draw: st.DrawFn, tree: Tree) -> dict[str, int]:
    """A point at or beside thresholds of the tree, where mistakes by one show."""
    return {name: draw(st.sampled_from(near_thresholds(tree, name))) for name in FEATURES}


def near_thresholds(tree: Tree, feature: str) -> list[int]:
    found = {0, 1, 17}
    pending = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Split):
            pending += [node.low, node.high]
            if node.feature == feature:
                found |= {node.threshold - 1, node.threshold, node.threshold + 1}
    return sorted(found)
