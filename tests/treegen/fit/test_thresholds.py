"""candidate_splits: one round threshold for each gap that the grid falls into."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples

from treegen.fit.training_set import candidate_splits, low_sides

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
    few, grid = (
        low_sides(candidate_splits(features), features),
        low_sides(candidate_splits(crowded), features),
    )
    for one in range(len(rows)):
        for other in range(len(rows)):
            assert (few[:, one] != few[:, other]).any() == (rows[one] != rows[other])
            apart = any(_on_grid(*sorted(pair)) for pair in zip(rows[one], rows[other], strict=True))
            assert (grid[:, one] != grid[:, other]).any() == apart


@examples(200)
@given(TABLES)
def test_there_is_one_split_per_gap_and_no_two_divide_alike(rows: list[list[int]]) -> None:
    features = np.array(rows, dtype=np.int64)
    splits = candidate_splits(features)
    assert len({(split.feature, split.below) for split in splits}) == len(splits)
    sides = low_sides(splits, features)
    assert len({one.tobytes() for one in sides}) == len(splits)
    assert all(0 < int(one.sum()) < len(rows) for one in sides)


@examples(200)
@given(TABLES)
def test_thresholds_lie_between_neighbouring_values(rows: list[list[int]]) -> None:
    features = np.array(rows, dtype=np.int64)
    for split in candidate_splits(features):
        values = sorted(set(features[:, split.feature].tolist()))
        assert values.index(split.above) == values.index(split.below) + 1
        assert split.below <= split.threshold < split.above


@examples(100)
@given(TABLES, st.randoms(use_true_random=False))
def test_the_order_of_rows_and_copies_of_them_change_nothing(rows: list[list[int]], rng: object) -> None:
    shuffled = [*rows, *rows[:2]]
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert candidate_splits(np.array(rows, dtype=np.int64)) == candidate_splits(
        np.array(shuffled, dtype=np.int64)
    )


def test_the_grid_is_coarse_above_sixteen() -> None:
    splits = candidate_splits(np.arange(1, 101)[:, None])
    assert [split.threshold for split in splits] == [*range(1, 17), 24, 32, 48, 64, 96]
    assert [(split.below, split.above) for split in splits[-2:]] == [(64, 65), (96, 97)]


def test_the_threshold_of_a_wide_gap_is_round() -> None:
    (split,) = candidate_splits(np.array([[100], [1000]]))
    assert (split.threshold, split.below, split.above) == (256, 100, 1000)


def test_where_values_lie_close_the_threshold_is_the_grids_own() -> None:
    assert [split.threshold for split in candidate_splits(np.array([[61], [65], [80]]))] == [64, 65]
    assert [split.threshold for split in candidate_splits(np.array([[50], [70], [99]]))] == [64, 96]
    assert [split.threshold for split in candidate_splits(np.array([[80], [96], [112]]))] == [80, 96]


def test_of_columns_that_order_rows_alike_only_the_first_is_split() -> None:
    column = np.array([1, 2, 64, 4096])
    both = candidate_splits(np.stack([column, 8 * column], axis=1))
    assert both == candidate_splits(column[:, None])


@pytest.mark.parametrize("values", [[5], [5, 5], [*range(100, 120)], [*range(130, 190)]])
def test_rows_between_two_grid_thresholds_are_not_divided(values: list[int]) -> None:
    assert candidate_splits(np.array(values)[:, None]) == ()


def test_negative_values_far_from_zero_are_on_the_grid_too() -> None:
    splits = candidate_splits(np.array([[-(1 << 62)], [-70], [-50], [0], [1 << 62]]))
    assert [(split.below, split.above) for split in splits] == [
        (-(1 << 62), -70),
        (-70, -50),
        (-50, 0),
        (0, 1 << 62),
    ]


def test_sides_of_rows_that_were_not_measured() -> None:
    splits = candidate_splits(np.array([[1, 8], [64, 8], [64, 512]]))
    assert low_sides(splits, np.array([[0, 0], [64, 64], [9999, 9999]])).tolist() == [
        [True, False, False],
        [True, True, False],
    ]
    assert low_sides((), np.array([[0, 0]])).shape == (0, 1)
