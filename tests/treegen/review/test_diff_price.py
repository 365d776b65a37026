"""The price of a change by a table of times, and which of it is noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_priced import priced
from treegen_strategies import examples

from treegen.core.problem import FORBIDDEN, UNIT
from treegen.core.table import Cells
from treegen.review.diff.price import SURE, Price, Tolerance, Verdict, price

times = st.one_of(st.floats(0.1, 1e5), st.sampled_from([math.nan, math.inf]))
cells = st.lists(st.tuples(times, times, st.booleans()), min_size=1, max_size=12)


@examples(150)
@given(cells)
def test_figures_agree_with_a_loop(rows: list[tuple[float, float, bool]]) -> None:
    old = np.array([before for before, _, _ in rows])
    same = np.array([unchanged for _, _, unchanged in rows])
    new = np.where(same, old, [after for _, after, _ in rows])
    found = priced(old, new, spread=0.02, same=same)
    pairs = [(b, a, bool(u), f"s{i}") for i, (b, a, u) in enumerate(zip(old, new, same, strict=True))]
    timed = [pair for pair in pairs if math.isfinite(pair[0]) and math.isfinite(pair[1])]
    assert (found.scenarios, found.changed, found.timed) == (len(rows), int((~same).sum()), len(timed))
    assert found.lost == sum(math.isfinite(b) and not math.isfinite(a) for b, a, _, _ in pairs)
    assert found.gained == sum(math.isfinite(a) and not math.isfinite(b) for b, a, _, _ in pairs)
    assert found.failing == sum(math.isinf(a) and not u for _, a, u, _ in pairs)
    if not timed:
        assert found.ratio is found.error is found.worst is found.best is None
        return
    assert found.ratio == pytest.approx(
        math.prod(a / b for b, a, _, _ in timed) ** (1 / len(timed)), rel=1e-5
    )
    ratios = [a / b for b, a, u, _ in timed if not u]
    assert found.error == pytest.approx(0.02 * math.sqrt(len(ratios)) / len(timed))
    for end, expected in ((found.worst, max(ratios, default=1)), (found.best, min(ratios, default=1))):
        if end is not None:
            (ratio,) = (a / b for b, a, _, name in timed if name == end[0])
            assert ratio == pytest.approx(expected, rel=1e-5) == pytest.approx(end[1], rel=1e-5)
    assert (found.worst is None) == (max(ratios, default=1) <= 1 + 1e-6) or max(ratios) < 1 + 2e-6
    assert (found.best is None) == (min(ratios, default=1) >= 1 - 1e-6) or min(ratios) > 1 - 2e-6


@examples(80)
@given(cells)
def test_a_failed_new_config_is_slower_whatever_else_is_gained(
    rows: list[tuple[float, float, bool]],
) -> None:
    old = np.array([before for before, _, _ in rows] + [10.0])
    new = np.array([after for _, after, _ in rows] + [math.inf])
    assert priced(old, new, threshold=11.0).verdict is Verdict.SLOWER


@examples(80)
@given(cells)
def test_equal_configs_are_the_same_even_if_they_fail(rows: list[tuple[float, float, bool]]) -> None:
    both = np.array([before for before, _, _ in rows])
    found = priced(both, both, same=np.ones(len(both), dtype=bool))
    assert found.verdict is Verdict.SAME
    assert found.failing == found.changed == 0


_EDGE = SURE * 0.01 / math.sqrt(9)  # three standard errors of nine scenarios


@pytest.mark.parametrize(
    ("ratio", "count", "spread", "threshold", "verdict"),
    [
        (math.exp(_EDGE * 0.99), 9, 0.01, 1.03, Verdict.NOISE),
        (math.exp(-_EDGE * 0.99), 9, 0.01, 1.03, Verdict.NOISE),
        (math.exp(_EDGE * 1.01), 9, 0.01, 1.03, Verdict.TOLERATED),
        (math.exp(-_EDGE * 1.01), 9, 0.01, 1.03, Verdict.FASTER),
        (1.02, 2, 0.01, 1.03, Verdict.NOISE),  # more scenarios make surer
        (1.02, 3, 0.01, 1.03, Verdict.TOLERATED),
        (1.0299, 9, 0.01, 1.03, Verdict.TOLERATED),
        (1.0301, 9, 0.01, 1.03, Verdict.SLOWER),
        (1.5, 9, 0.01, 1.5 + 1e-6, Verdict.TOLERATED),
        (1.0, 9, 0, 1.03, Verdict.NOISE),  # without noise every difference counts, but no difference does not
        (1.00001, 9, 0, 1.0, Verdict.SLOWER),
        (0.99999, 9, 0, 1.03, Verdict.FASTER),
    ],
)
def test_verdicts(ratio: float, count: int, spread: float, threshold: float, verdict: Verdict) -> None:
    old = np.full(count, 100.0)
    assert priced(old, old * ratio, spread=spread, threshold=threshold).verdict is verdict


def test_untimed_configs_have_no_price() -> None:
    gone, there = np.array([math.nan, math.nan]), np.array([10.0, 10.0])
    for old, new, lost, gained in ((gone, there, 0, 2), (there, gone, 2, 0), (gone, gone, 0, 0)):
        found = priced(old, new)
        assert (found.verdict, found.lost, found.gained) == (Verdict.UNTIMED, lost, gained)
    same = np.array([True, False])
    assert priced(np.array([10.0, math.nan]), there, same=same).verdict is Verdict.UNTIMED


def _price_by_winners(lost: int, gained: int, neither: int = 0, fails: int = 0, same: int = 0) -> Price:
    """The price of so many scenarios of each kind.

    The kinds: only the old config wins; only the new one; neither; the new one fails; both are one winner.
    """
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
        found = _price_by_winners(lost, gained, neither, same=same)
        assert found.verdict is verdict
        assert found.won == (lost + same, gained + same)
        assert found.ratio is found.error is found.worst is found.best is None  # nothing is invented


def test_winners_that_fail_are_slower_and_equal_ones_the_same() -> None:
    assert _price_by_winners(0, 50, fails=1).verdict is Verdict.SLOWER
    assert _price_by_winners(0, 0, same=3).verdict is Verdict.SAME
