"""Rows and ratios in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from treegen_builders import device_and_kernel

from treegen.review.printing import percent, row_words


def test_a_row_is_called_by_its_number_and_name(tmp_path: Path) -> None:
    kernel = replace(device_and_kernel(tmp_path)[1], row_names={("steps", 1): "few rows"})
    assert row_words("steps", 0, kernel) == "steps, row 0"
    assert row_words("steps", 1, kernel) == "steps, row 1 (few rows)"


@pytest.mark.parametrize(("ratio", "text"), [(1.024, "+2.4%"), (0.9969, "-0.31%"), (1.38, "+38%")])
def test_a_ratio_is_a_change_of_two_digits(ratio: float, text: str) -> None:
    assert percent(ratio) == text
