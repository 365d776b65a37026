"""The price of a change by one table, and which of it is noise, against loops and simulated tables."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from treegen_strategies import examples

from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED
from treegen.core.table import Cells, Table, TableConfig, median_times
from treegen.review.diff.prices import SURE, Price, Verdict, price, spread

Floats = npt.NDArray[np.float64]


def table(times: Floats, cells: Cells = Cells.MEASURED) -> Table:
    """A table of [repeats, scenarios, configs] microseconds, first all scenarios once, then all again."""
    repeats, scenarios, configs = times.shape
    return Table(
        folder=Path("tables/made"),
        kernel="scale",
        device_name="NVIDIA H100",
        cells=cells,
        feature_names=("rows",),
        configs=tuple(TableConfig(f"c{i}", "plain", {"block": i}) for i in range(configs)),
        scenarios=tuple(f"s{i}" for i in range(scenarios)),
        features=np.arange(scenarios, dtype=np.int64)[:, None],
        row_scenario=np.tile(np.arange(scenarios), repeats),
        row_repeat=np.repeat(np.arange(1, repeats + 1), scenarios),
        times=times.reshape(repeats * scenarios, configs),
    )


def costs(times: Floats) -> npt.NDArray[np.int64]:
    """Costs as in Problem for some times; NaN was not measured, inf failed.

    The best time is arbitrary, as only differences count.
    """
    with np.errstate(invalid="ignore"):
        steps = np.rint(np.log(np.where(np.isfinite(times), times, 1.0)) * UNIT).astype(np.int64)
    return np.where(np.isnan(times), UNTIMED, np.where(np.isinf(times), FORBIDDEN, steps))


def priced(
    old: Floats,
    new: Floats,
    *,
    spread: float | None = 0.01,
    threshold: float = 1.01,
    same: npt.NDArray[np.bool_] | None = None,
) -> Price:
    """The price of launching what takes `new` where `old` was; both [scenarios] microseconds."""
    unchanged = np.zeros(len(old), dtype=bool) if same is None else same
    scenarios = tuple(f"s{i}" for i in range(len(old)))
    return price(
        *(scenarios, costs(old), costs(new), unchanged),
        cells=Cells.MEASURED,
        spread=spread,
        threshold=threshold,
    )


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
    assert found.failing == sum(math.isinf(a) and not u for _, a, u, _ in pairs)
    if not timed:
        assert found.ratio is found.error is found.worst is found.best is None
        return
    mean = math.prod(a / b for b, a, _, _ in timed) ** (1 / len(timed))
    assert found.ratio == pytest.approx(mean, rel=1e-5)
    ratios = [a / b for b, a, u, _ in timed if not u]
    assert found.error == pytest.approx(0.02 * math.sqrt(len(ratios)) / len(timed))
    for end, expected in ((found.worst, max(ratios, default=1)), (found.best, min(ratios, default=1))):
        if end is not None:
            (ratio,) = (a / b for b, a, _, name in timed if name == end[0])
            assert ratio == pytest.approx(expected, rel=1e-5) == pytest.approx(end[1], rel=1e-5)
    assert found.worst is not None or max(ratios, default=1) < 1 + 2e-6
    assert found.best is not None or min(ratios, default=1) > 1 - 2e-6


@examples(80)
@given(cells)
def test_a_failed_new_config_is_slower_whatever_else_is_gained(rows: list[tuple[float, float, bool]]) -> None:
    old = np.array([before for before, _, _ in rows] + [10.0])
    new = np.array([after for _, after, _ in rows] + [math.inf])
    assert priced(old, new, threshold=11.0).verdict is Verdict.SLOWER
    unchanged = priced(new, new, same=np.ones(len(new), dtype=bool))
    assert (unchanged.verdict, unchanged.failing) == (Verdict.SAME, 0)


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
        (1.0, 9, 0, 1.03, Verdict.NOISE),
        (1.00001, 9, 0, 1.0, Verdict.SLOWER),
        (0.99999, 9, 0, 1.03, Verdict.FASTER),
        (1.2, 9, None, 1.03, Verdict.SLOWER),  # a single repeat: only the threshold applies
    ],
)
def test_verdicts(ratio: float, count: int, spread: float | None, threshold: float, verdict: Verdict) -> None:
    old = np.full(count, 100.0)
    assert priced(old, old * ratio, spread=spread, threshold=threshold).verdict is verdict


def test_untimed_configs_have_no_price() -> None:
    gone, there = np.array([math.nan, math.nan]), np.array([10.0, 10.0])
    for old, new in ((gone, there), (there, gone), (gone, gone)):
        assert priced(old, new).verdict is Verdict.UNTIMED
    same = np.array([True, False])
    assert priced(np.array([10.0, math.nan]), there, same=same).verdict is Verdict.UNTIMED


def _price_by_winners(lost: int, gained: int, neither: int = 0, fails: int = 0, same: int = 0) -> Price:
    """By scenarios that the old, the new and no config wins, where the new fails, and where both are one."""
    old = [0] * lost + [UNIT] * (gained + neither + fails) + [0] * same
    new = [UNIT] * lost + [0] * gained + [UNIT] * neither + [FORBIDDEN] * fails + [0] * same
    unchanged = np.arange(len(old)) >= len(old) - same
    scenarios = tuple(f"s{i}" for i in range(len(old)))
    costs = np.array(old, np.int64), np.array(new, np.int64)
    return price(scenarios, *costs, unchanged, cells=Cells.WINNERS, spread=None, threshold=1.01)


@pytest.mark.parametrize(
    ("lost", "gained", "verdict"),
    [
        (0, 0, Verdict.NOISE),
        (9, 0, Verdict.NOISE),  # 9 = 3 sqrt(9)
        (10, 0, Verdict.SLOWER),
        (0, 10, Verdict.FASTER),
        (20, 5, Verdict.NOISE),  # 15 = 3 sqrt(25)
        (21, 5, Verdict.SLOWER),
        (400, 500, Verdict.FASTER),
    ],
)
def test_winners_are_compared_by_mcnemars_test(lost: int, gained: int, verdict: Verdict) -> None:
    for neither, same in ((1, 0), (40, 7)):
        found = _price_by_winners(lost, gained, neither, same=same)
        assert (found.verdict, found.won) == (verdict, (lost + same, gained + same))
        assert (found.ratio, found.error, found.worst, found.best) == (None,) * 4  # nothing is invented


def test_winners_that_fail_are_slower_and_equal_ones_the_same() -> None:
    assert _price_by_winners(0, 50, fails=1).verdict is Verdict.SLOWER
    assert _price_by_winners(0, 0, same=3).verdict is Verdict.SAME


# The noise of a table


def _noisy(seed: int, sigma: float, shape: tuple[int, int, int], slower: float = 1.0) -> Floats:
    """[repeats, scenarios, configs] times of configs alike but the last, which is `slower`."""
    random = np.random.default_rng(seed)
    best = np.exp(random.uniform(0, 8, shape[1]))[None, :, None]
    effect = np.where(np.arange(shape[2]) == shape[2] - 1, slower, 1.0)
    return np.asarray(best * effect * np.exp(random.normal(0, sigma, shape)))


def _moved_to_the_last(times: Floats, count: int, threshold: float) -> Verdict:
    """The verdict on `count` scenarios that launched the first config and now launch the last one."""
    measured = table(times)
    medians = median_times(measured)[:count]
    return priced(medians[:, 0], medians[:, -1], spread=spread(measured), threshold=threshold).verdict


@pytest.mark.parametrize(("count", "repeats"), [(1, 2), (60, 3)])
def test_noise_is_no_regression(count: int, repeats: int) -> None:
    """Without a threshold: three standard errors alone leave 0.13%."""
    verdicts = [_moved_to_the_last(_noisy(seed, 0.02, (repeats, 60, 2)), count, 1.0) for seed in range(200)]
    assert verdicts.count(Verdict.SLOWER) <= 2
    assert verdicts.count(Verdict.FASTER) <= 2


def test_a_slowdown_of_5_percent_is_found() -> None:
    for seed in range(40):
        assert _moved_to_the_last(_noisy(seed, 0.01, (2, 50, 2), 1.05), 50, 1.01) is Verdict.SLOWER
        assert _moved_to_the_last(_noisy(seed, 0.01, (2, 50, 2), 1 / 1.05), 50, 1.01) is Verdict.FASTER


@pytest.mark.parametrize("repeats", [2, 3, 5, 8])
def test_spread_is_that_of_the_ratio_of_two_medians(repeats: int) -> None:
    measured = table(_noisy(repeats, 0.05, (repeats, 4000, 2)))
    medians = np.log(median_times(measured))
    estimated, true = spread(measured), float(np.std(medians[:, 0] - medians[:, 1]))
    assert estimated is not None
    assert 0.95 * true < estimated < 1.16 * true  # medians of 4, 6 and 8 spread less than the rule says


def test_one_glitch_counts_as_a_factor_of_two() -> None:
    times = _noisy(0, 0.01, (2, 500, 4))
    calm = spread(table(times)) or 0.0
    wild = times.copy()
    wild[1, 7, 2] = wild[0, 7, 2] * 1000
    assert spread(table(wild)) == pytest.approx(math.sqrt(calm**2 + math.log(2) ** 2 / 2 / 2000), rel=1e-3)


def test_differences_of_scenarios_and_failures_are_no_noise() -> None:
    times = np.full((2, 6, 2), 10.0) * np.arange(1, 7)[None, :, None]
    times[0, 1, 1] = times[1, 2, 0] = math.inf
    times[0, 3, 1] = math.nan
    assert spread(table(times)) == 0


def test_a_single_repeat_has_no_estimate_of_noise() -> None:
    assert spread(table(_noisy(1, 0.01, (1, 40, 2)))) is None
    assert spread(table(_noisy(1, 0.01, (1, 40, 2)), Cells.WINNERS)) is None
