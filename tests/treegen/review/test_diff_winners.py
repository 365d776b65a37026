"""A table of winners knows who won, not by how much."""

from __future__ import annotations

import numpy as np
import pytest

from treegen.core.problem import FORBIDDEN, UNIT
from treegen.core.table import Cells
from treegen.review.diff.price import Price, Tolerance, Verdict, price


def _price(lost: int, gained: int, neither: int = 0, fails: int = 0, same: int = 0) -> Price:
    """Of so many scenarios in which only the old choice wins, only the new one, none; in which the new one
    fails; and in which both are one config that wins."""
    old = [0] * lost + [UNIT] * (gained + neither + fails) + [0] * same
    new = [UNIT] * lost + [0] * gained + [UNIT] * neither + [FORBIDDEN] * fails + [0] * same
    unchanged = np.arange(len(old)) >= len(old) - same
    scenarios = tuple(f"s{i}" for i in range(len(old)))
    scale = Tolerance(Cells.WINNERS, 0.0, 1.01)
    return price(scenarios, np.array(old, np.int64), np.array(new, np.int64), unchanged, scale)


@pytest.mark.parametrize(
    ("lost", "gained", "verdict"),
    [
        (0, 0, Verdict.NOISE),
        (9, 0, Verdict.NOISE),  # 9 = 3 sqrt(9)
        (10, 0, Verdict.SLOWER),
        (0, 10, Verdict.FASTER),
        (0, 9, Verdict.NOISE),
        (20, 5, Verdict.NOISE),  # 15 = 3 sqrt(25)
        (21, 5, Verdict.SLOWER),
        (500, 450, Verdict.NOISE),
        (500, 400, Verdict.SLOWER),
        (400, 500, Verdict.FASTER),
    ],
)
def test_mcnemar(lost: int, gained: int, verdict: Verdict) -> None:
    for neither, same in ((1, 0), (40, 7)):
        found = _price(lost, gained, neither, same=same)
        assert found.verdict is verdict
        assert found.won == (lost + same, gained + same)
        assert found.ratio is found.error is found.worst is found.best is None  # nothing is invented


def test_failing_is_slower_and_equal_is_the_same() -> None:
    assert _price(0, 50, fails=1).verdict is Verdict.SLOWER
    assert _price(0, 0, same=3).verdict is Verdict.SAME
