"""candidate_splits: one round threshold for each gap that the grid falls into."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_strategies import examples

from treegen.fit.splits import candidate_splits, low_sides, round_between

VALUES = st.integers(0, 40) | st.integers(0, 5000) | st.integers(-60, 60) | st.integers(0, 1 << 62)
TABLES = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(VALUES, min_size=width, max_size=width), min_size=1, max_size=8)
)


def _on_grid(low: int, high: int) -> bool:
    """Whether some t with low <= t < high is on the grid: up to 15, 2^k or 3 * 2^k, or the opposite."""
    sizes = {*range(16), *(m << k for k in range(63) for m in (1, 3))}
    return any(low <= t < high for size in sizes for t in (size, -size))


@examples(200)
@given(TABLES)
def test_rows_are_divided_exactly_where_the_grid_lies_between_them(rows: list[list[int]]) -> None:
    """All columns have few values; with many more, only the grid divides them."""
    features = np.array(rows, dtype=np.int64)
    many = np.arange(40)[:, None] + np.int64(1 << 40)  # none of these is on the grid but the first
    crowded = np.vstack([features, np.broadcast_to(many, (40, features.shape[1]))])
    few, grid = (low_sides(candidate_splits(known), features) for known in (features, crowded))
    for one in range(len(rows)):
        for other in range(len(rows)):
            assert (few[:, one] != few[:, other]).any() == (rows[one] != rows[other])
            apart = any(_on_grid(*sorted(pair)) for pair in zip(rows[one], rows[other], strict=True))
            assert (grid[:, one] != grid[:, other]).any() == apart


@examples(200)
@given(TABLES)
def test_every_split_divides_and_no_two_divide_alike(rows: list[list[int]]) -> None:
    features = np.array(rows, dtype=np.int64)
    splits = candidate_splits(features)
    sides = low_sides(splits, features)
    assert len({one.tobytes() for one in sides}) == len(splits)
    assert all(0 < int(one.sum()) < len(rows) for one in sides)


@examples(100)
@given(TABLES, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_copies_of_them_change_nothing(rows: list[list[int]], rng: object) -> None:
    shuffled = [*rows, *rows[:2]]
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (candidate_splits(np.array(own, dtype=np.int64)) for own in (rows, shuffled))
    assert one == other


def _odd_part(value: int) -> int:
    return value // (value & -value)


NEAR_POWERS = st.builds(lambda power, offset: (1 << power) + offset, st.integers(40, 62), st.integers(-3, 3))
GAPS = st.integers(1, 10**5) | st.sampled_from([1, 2, 3, 5, 1000, 10**9, 2**62])


@examples(600)
@given(st.integers(-50, 10**5) | NEAR_POWERS, GAPS)
def test_a_threshold_separates_its_neighbours(below: int, gap: int) -> None:
    """Also where the values are beyond the precision of floats."""
    assert below <= round_between(below, below + gap) < below + gap


@pytest.mark.parametrize(
    ("below", "above", "threshold"),
    [(0, 1, 0), (1, 2, 1), (4, 6, 5), (64, 128, 96), (100, 300, 192), (1000, 1002, 1001)],
)
def test_round_numbers_between_neighbours(below: int, above: int, threshold: int) -> None:
    assert round_between(below, above) == threshold


@examples(200)
@given(st.integers(1, 10**4), st.integers(2, 10**4))
def test_no_rounder_number_lies_close_to_the_middle(below: int, gap: int) -> None:
    above = below + gap
    threshold = round_between(below, above)
    low, high = below * (above / below) ** 0.26, below * (above / below) ** 0.74
    assume(low <= threshold <= high)
    assert all(_odd_part(t) >= _odd_part(threshold) for t in range(int(low) + 1, int(high) + 1) if t < high)
