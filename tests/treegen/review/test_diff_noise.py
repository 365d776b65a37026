"""Which differences are noise by the table's repeats, checked against simulated tables."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from treegen_builders import grid, planted, time_rows
from treegen_diffs import compared, of_device, project
from treegen_priced import Floats, priced, table

from treegen.core.table import Cells, median_times
from treegen.review.diff.price import Verdict, spread
from treegen.review.diff.wording import price_words, table_lines


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


@pytest.mark.parametrize("count", [1, 60])
@pytest.mark.parametrize("repeats", [2, 3])
def test_noise_is_no_regression(count: int, repeats: int) -> None:
    """Without a threshold: three standard errors alone leave 0.13%."""
    verdicts = [_moved_to_the_last(_noisy(seed, 0.02, (repeats, 60, 2)), count, 1.0) for seed in range(200)]
    assert verdicts.count(Verdict.SLOWER) <= 2
    assert verdicts.count(Verdict.FASTER) <= 2


def test_a_slowdown_of_5_percent_is_found() -> None:
    for seed in range(80):
        assert _moved_to_the_last(_noisy(seed, 0.01, (2, 50, 2), 1.05), 50, 1.01) is Verdict.SLOWER
        assert _moved_to_the_last(_noisy(seed, 0.01, (2, 50, 2), 1 / 1.05), 50, 1.01) is Verdict.FASTER


@pytest.mark.parametrize("repeats", [2, 3, 5, 8])
@pytest.mark.parametrize("sigma", [0.003, 0.05])
def test_spread_is_that_of_the_ratio_of_two_medians(repeats: int, sigma: float) -> None:
    measured = table(_noisy(repeats, sigma, (repeats, 4000, 2)))
    medians = np.log(median_times(measured))
    estimated, true = spread(measured), float(np.std(medians[:, 0] - medians[:, 1]))
    assert 0.95 * true < estimated < 1.16 * true  # medians of 4, 6 and 8 spread less than the rule says
    if repeats == 2:
        assert estimated == pytest.approx(sigma, rel=0.1)


def test_one_glitch_counts_as_a_factor_of_two() -> None:
    times = _noisy(0, 0.01, (2, 500, 4))
    calm = spread(table(times))
    found = []
    for factor in (2.0, 1000.0):
        wild = times.copy()
        wild[1, 7, 2] = wild[0, 7, 2] * factor
        found.append(spread(table(wild)))
    assert found[0] == pytest.approx(found[1])
    assert found[0] == pytest.approx(math.sqrt(calm**2 + math.log(2) ** 2 / 2 / 2000), rel=1e-3)


def test_differences_of_scenarios_and_failures_are_no_noise() -> None:
    times = np.full((2, 6, 2), 10.0) * np.arange(1, 7)[None, :, None]
    times[0, 1, 1] = times[1, 2, 0] = math.inf
    times[0, 3, 1] = math.nan
    assert spread(table(times)) == 0


def test_the_order_of_rows_does_not_matter() -> None:
    measured = table(_noisy(1, 0.01, (3, 40, 2)))
    order = np.random.default_rng(0).permutation(120)
    rows = {name: getattr(measured, name)[order] for name in ("row_scenario", "row_repeat", "times")}
    shuffled = type(measured)(**{**vars(measured), **rows})
    assert spread(shuffled) == pytest.approx(spread(measured), rel=1e-12)


def test_a_single_repeat_has_no_estimate_of_noise() -> None:
    assert spread(table(_noisy(1, 0.01, (1, 40, 2)))) is None
    assert spread(table(_noisy(1, 0.01, (1, 40, 2)), Cells.WINNERS)) is None
    found = priced(np.array([10.0]), np.array([12.0]), spread=None)
    assert (found.error, found.verdict, price_words(found)) == (None, Verdict.SLOWER, "+20%")


def test_tables_with_a_single_repeat_print_no_noise(tmp_path: Path) -> None:
    """Of a cell whose time changed."""
    for name, factor in (("old", 1.0), ("new", 1.5)):
        rows = time_rows(grid(), lambda row, by=factor: [by * time for time in planted(row)], repeats=1)
        project(tmp_path / name, rows=rows)
    change = of_device(compared(tmp_path / "old", tmp_path / "new")).table
    assert change is not None and change.spread is None
    assert table_lines(change)[1] == "Times of 27 cells in both: +50% (5% to 95%: +50% to +50%)."
