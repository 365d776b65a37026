"""Thresholds lie between their neighbours and are numbers to remember."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st
from treegen_strategies import examples

from treegen.fit.training_set import round_between


def _odd_part(value: int) -> int:
    return value // (value & -value)


@examples(300)
@given(st.integers(-50, 10**5), st.integers(1, 10**5))
def test_a_threshold_separates_its_neighbours(below: int, gap: int) -> None:
    assert below <= round_between(below, below + gap) < below + gap


@examples(200)
@given(st.integers(1, 10**4), st.integers(2, 10**4))
def test_no_rounder_number_lies_close_to_the_middle(below: int, gap: int) -> None:
    above = below + gap
    threshold = round_between(below, above)
    low, high = below * (above / below) ** 0.26, below * (above / below) ** 0.74
    assume(low <= threshold <= high)
    assert all(_odd_part(t) >= _odd_part(threshold) for t in range(int(low) + 1, int(high) + 1) if t < high)


def test_round_numbers_between_powers_of_two() -> None:
    found = {
        gap: round_between(*gap) for gap in [(1, 2), (1, 4), (16, 32), (64, 128), (128, 2048), (100, 300)]
    }
    assert found == {(1, 2): 1, (1, 4): 2, (16, 32): 24, (64, 128): 96, (128, 2048): 512, (100, 300): 192}


def test_what_has_no_logarithm_stays() -> None:
    assert [round_between(*gap) for gap in [(0, 1), (0, 1000), (-5, 7), (-9, -2)]] == [0, 0, -5, -9]


@examples(300)
@given(st.integers(40, 62), st.integers(-3, 3), st.sampled_from([1, 2, 3, 5, 1000, 10**9, 2**62]))
def test_values_beyond_the_precision_of_floats(power: int, offset: int, gap: int) -> None:
    below = (1 << power) + offset
    assert below <= round_between(below, below + gap) < below + gap


def test_between_close_large_values() -> None:
    assert round_between(10_000_001, 10_000_004) in (10_000_001, 10_000_002, 10_000_003)
