"""readable_thresholds: measured scenarios keep their choice; thresholds become numbers to remember."""

from __future__ import annotations

import time

from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_strategies import CONFIGS, FEATURES, examples

from treegen.passes.thresholds import readable_between, readable_thresholds
from treegen.tree import Leaf, Split, Tree, choose

VALUES = st.lists(st.integers(-10, 4096), min_size=2, max_size=8, unique=True).map(sorted)


@st.composite
def _measured(draw: st.DrawFn) -> tuple[Tree, dict[str, list[int]]]:
    """A tree as fitting makes it (thresholds are the low ends of gaps), and the measured values."""
    values = {name: draw(VALUES) for name in FEATURES}

    def split(name: str, position: int, low: Tree, high: Tree) -> Split:
        below, above = values[name][position % (len(values[name]) - 1) :][:2]
        return Split(name, below, low, high, (below, above))

    leaf = st.sampled_from(CONFIGS).map(Leaf)
    position = st.integers(0, 7)
    tree = st.recursive(
        leaf, lambda t: st.builds(split, st.sampled_from(FEATURES), position, t, t), max_leaves=8
    )
    return draw(tree), values


@examples(200)
@given(st.data(), _measured())
def test_measured_points_keep_their_choice(
    data: st.DataObject, case: tuple[Tree, dict[str, list[int]]]
) -> None:
    tree, values = case
    point = {name: data.draw(st.sampled_from(values[name])) for name in FEATURES}
    assert choose(readable_thresholds(tree), point) == choose(tree, point)


def _odd_part(value: int) -> int:
    return value // (value & -value)


@examples(300)
@given(st.integers(-50, 10**5), st.integers(1, 10**5))
def test_a_threshold_separates_its_neighbours(below: int, gap: int) -> None:
    assert below <= readable_between(below, below + gap) < below + gap


@examples(200)
@given(st.integers(1, 10**4), st.integers(2, 10**4))
def test_no_rounder_number_lies_close_to_the_middle(below: int, gap: int) -> None:
    above = below + gap
    threshold = readable_between(below, above)
    low, high = below * (above / below) ** 0.26, below * (above / below) ** 0.74
    assume(low <= threshold <= high)
    assert all(_odd_part(t) >= _odd_part(threshold) for t in range(int(low) + 1, int(high) + 1) if t < high)


def test_round_numbers_between_powers_of_two() -> None:
    found = {
        gap: readable_between(*gap) for gap in [(1, 2), (1, 4), (16, 32), (64, 128), (128, 2048), (100, 300)]
    }
    assert found == {(1, 2): 1, (1, 4): 2, (16, 32): 24, (64, 128): 96, (128, 2048): 512, (100, 300): 192}


def test_what_has_no_logarithm_stays() -> None:
    assert [readable_between(*gap) for gap in [(0, 1), (0, 1000), (-5, 7), (-9, -2)]] == [0, 0, -5, -9]


@examples(300)
@given(st.integers(40, 62), st.integers(-3, 3), st.sampled_from([1, 2, 3, 5, 1000, 10**9, 2**62]))
def test_values_beyond_the_precision_of_floats(power: int, offset: int, gap: int) -> None:
    below = (1 << power) + offset
    assert below <= readable_between(below, below + gap) < below + gap


def test_a_threshold_from_a_constraint_is_exact() -> None:
    a, b = (Leaf(config) for config in CONFIGS[:2])
    assert readable_thresholds(Split("rows", 37, a, b)) == Split("rows", 37, a, b)


def test_close_large_values_take_no_time() -> None:
    start = time.process_time()
    readable_between(10_000_001, 10_000_004)
    assert time.process_time() - start < 0.05
