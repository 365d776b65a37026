"""Axes that double from step to step."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples

from treegen.review.report.log_axis import label, positions, ticks, value_at


@given(st.lists(st.integers(-(2**40), 2**40), min_size=2))
@examples(50)
def test_a_greater_value_lies_further_on(values: list[int]) -> None:
    ordered = np.array(sorted(set(values)), dtype=np.int64)
    assert (np.diff(positions(ordered)) > 0).all()


@given(st.integers(-40, 40))
@examples(50)
def test_whole_places_are_zero_and_powers_of_two(place: int) -> None:
    value = value_at(place)
    assert positions(np.array([value]))[0] == place
    assert abs(value) == (2 ** (abs(place) - 1) if place else 0)


@given(st.floats(-20, 20), st.floats(0, 40), st.integers(2, 9))
@examples(50)
def test_ticks_are_whole_evenly_spaced_inside_and_few(low: float, length: float, most: int) -> None:
    found = ticks(low, low + length, most)
    assert all(low <= tick <= low + length for tick in found)
    assert len(found) <= most and len(set(np.diff(found))) <= 1
    assert bool(found) == (math.ceil(low) <= math.floor(low + length))


def test_labels_use_binary_units_only_where_they_are_exact() -> None:
    assert [label(value) for value in (0, 1, 1000, 1024, 1536, 65536, 1 << 20, -2048)] == [
        "0",
        "1",
        "1000",
        "1K",
        "1536",
        "64K",
        "1M",
        "-2K",
    ]
