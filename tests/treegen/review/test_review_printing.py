"""Ratios in words."""

import pytest

from treegen.review.printing import percent


@pytest.mark.parametrize(("ratio", "text"), [(1.024, "+2.4%"), (0.9969, "-0.31%"), (1.38, "+38%")])
def test_a_ratio_is_a_change_of_two_digits(ratio: float, text: str) -> None:
    assert percent(ratio) == text
