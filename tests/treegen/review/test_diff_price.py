"""What a change costs by a table of times, and what of it is no noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_priced import priced
from treegen_strategies import examples

from treegen.review.diff.price import SURE, Verdict

times = st.one_of(st.floats(0.1, 1e5), st.sampled_from([math.nan, math.inf]))
cells = st.lists(st.tuples(times, times, st.booleans()), min_size=1, max_size=12)


@examples(150)
@given(cells)
def test_figures_are_what_a_loop_finds(rows: list[tuple[float, float, bool]]) -> None:
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
    moved = [a / b for b, a, u, _ in timed if not u]
    assert found.error == pytest.approx(0.02 * math.sqrt(len(moved)) / len(timed))
    for end, wanted in ((found.worst, max(moved, default=1)), (found.best, min(moved, default=1))):
        if end is not None:
            (ratio,) = (a / b for b, a, _, name in timed if name == end[0])
            assert ratio == pytest.approx(wanted, rel=1e-5) == pytest.approx(end[1], rel=1e-5)
    assert (found.worst is None) == (max(moved, default=1) <= 1 + 1e-6) or max(moved) < 1 + 2e-6
    assert (found.best is None) == (min(moved, default=1) >= 1 - 1e-6) or min(moved) > 1 - 2e-6


@examples(80)
@given(cells)
def test_a_new_choice_that_failed_is_slower_whatever_else_is_gained(
    rows: list[tuple[float, float, bool]],
) -> None:
    old = np.array([before for before, _, _ in rows] + [10.0])
    new = np.array([after for _, after, _ in rows] + [math.inf])
    assert priced(old, new, threshold=11.0).verdict is Verdict.SLOWER


@examples(80)
@given(cells)
def test_equal_choices_are_the_same_even_where_they_fail(rows: list[tuple[float, float, bool]]) -> None:
    both = np.array([before for before, _, _ in rows])
    found = priced(both, both, same=np.ones(len(both), dtype=bool))
    assert found.verdict is Verdict.SAME
    assert found.failing == found.changed == 0


def _verdict(ratio: float, count: int = 9, *, spread: float = 0.01, threshold: float = 1.03) -> Verdict:
    old = np.full(count, 100.0)
    return priced(old, old * ratio, spread=spread, threshold=threshold).verdict


def test_three_standard_errors_part_noise_from_change() -> None:
    edge = SURE * 0.01 / math.sqrt(9)  # 1%
    assert _verdict(math.exp(edge * 0.99)) is _verdict(math.exp(-edge * 0.99)) is Verdict.NOISE
    assert _verdict(math.exp(edge * 1.01)) is Verdict.TOLERATED
    assert _verdict(math.exp(-edge * 1.01)) is Verdict.FASTER


def test_more_scenarios_make_surer() -> None:
    assert [_verdict(1.02, count) for count in (1, 2, 3, 9)] == [
        Verdict.NOISE,
        Verdict.NOISE,
        Verdict.TOLERATED,
        Verdict.TOLERATED,
    ]


def test_the_threshold_itself_is_tolerated() -> None:
    assert _verdict(1.0299) is Verdict.TOLERATED
    assert _verdict(1.0301) is Verdict.SLOWER
    assert _verdict(1.5, threshold=1.5 + 1e-6) is Verdict.TOLERATED


def test_without_noise_every_difference_counts_but_none_is_none() -> None:
    assert _verdict(1.0, spread=0) is Verdict.NOISE
    assert _verdict(1.00001, spread=0, threshold=1.0) is Verdict.SLOWER
    assert _verdict(0.99999, spread=0) is Verdict.FASTER


def test_what_no_table_timed_is_not_measured() -> None:
    gone, there = np.array([math.nan, math.nan]), np.array([10.0, 10.0])
    for old, new, lost, gained in ((gone, there, 0, 2), (there, gone, 2, 0), (gone, gone, 0, 0)):
        found = priced(old, new)
        assert (found.verdict, found.lost, found.gained) == (Verdict.UNTIMED, lost, gained)
    same = np.array([True, False])
    assert priced(np.array([10.0, math.nan]), there, same=same).verdict is Verdict.UNTIMED
