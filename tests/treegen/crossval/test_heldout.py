"""Figures of scored choices, against cases computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, UNTIMED_PENALTY
from treegen.core.table import Cells
from treegen.crossval.choices import Choices, joined, penalise_untimed
from treegen.crossval.heldout import gap_closed, quality


def _cost(slowdown: float) -> int:
    return round(math.log(slowdown) * UNIT)


def _choices(**cost: int) -> Choices:
    """A choice in each scenario."""
    return Choices(np.array(list(cost.values()), dtype=np.int64), tuple(cost))


def test_slowdowns_of_two_and_eight_have_the_geometric_mean_of_four() -> None:
    found = quality(_choices(a=_cost(2), b=_cost(8)), Cells.MEASURED)
    assert found.slowdown == pytest.approx(4, abs=1e-5)
    assert found.timed_slowdown == found.slowdown
    assert (found.choices, found.agreement, found.unmeasured, found.failed) == (2, 0, 0, 0)


def test_the_oracle_is_one() -> None:
    found = quality(_choices(a=0, b=0), Cells.MEASURED)
    assert (found.slowdown, found.percentile95, found.worst, found.agreement) == (1, 1, 1, 1)


def test_a_choice_without_a_time_counts_as_twice_the_best() -> None:
    found = quality(_choices(a=_cost(8), b=UNTIMED, c=UNTIMED, d=FORBIDDEN, e=0, f=0), Cells.MEASURED)
    assert found.slowdown == pytest.approx((8 * 2 * 2 * 2) ** (1 / 6), abs=1e-5)
    assert found.timed_slowdown == pytest.approx(8 ** (1 / 3), abs=1e-5)
    assert (found.unmeasured, found.failed) == (2, 1)
    assert found.agreement == pytest.approx(2 / 6)


def test_the_worst_is_a_measured_time_and_names_its_scenario() -> None:
    found = quality(_choices(a=_cost(1.1), b=_cost(1.5), c=UNTIMED, d=FORBIDDEN), Cells.MEASURED)
    assert (found.worst, found.worst_scenario) == (pytest.approx(1.5, abs=1e-5), "b")


def test_of_equally_bad_scenarios_the_first_in_the_alphabet_is_named() -> None:
    assert quality(_choices(b=_cost(3), a=_cost(3)), Cells.MEASURED).worst_scenario == "a"


def test_choices_without_any_time() -> None:
    found = quality(_choices(a=UNTIMED, b=FORBIDDEN), Cells.MEASURED)
    assert found.slowdown == pytest.approx(2, abs=1e-5)
    assert (found.timed_slowdown, found.worst, found.worst_scenario) == (None, None, None)


@pytest.mark.parametrize(("choices", "place"), [(1, 1), (19, 19), (20, 19), (21, 20), (40, 38), (100, 95)])
def test_95_percent_are_no_slower(choices: int, place: int) -> None:
    costs = np.random.RandomState(0).permutation(np.arange(1, choices + 1)) * 1000
    found = quality(Choices(costs.astype(np.int64), ("s",) * choices), Cells.MEASURED)
    assert found.percentile95 == math.exp(place * 1000 / UNIT)


def test_the_95th_percentile_penalises_untimed_choices() -> None:
    assert quality(_choices(a=0, b=FORBIDDEN), Cells.MEASURED).percentile95 == math.exp(
        UNTIMED_PENALTY / UNIT
    )


def test_a_table_of_winners_has_agreement_only() -> None:
    found = quality(_choices(a=0, b=UNIT, c=0, d=FORBIDDEN), Cells.WINNERS)
    assert (found.agreement, found.unmeasured, found.failed) == (0.5, 0, 1)
    assert {found.slowdown, found.timed_slowdown, found.percentile95, found.worst, found.worst_scenario} == {
        None
    }


def test_gap_closed() -> None:
    assert gap_closed(2, 8) == pytest.approx(2 / 3)
    assert gap_closed(8, 8) == 0
    assert gap_closed(1, 8) == 1
    assert gap_closed(64, 8) == pytest.approx(-1)


@pytest.mark.parametrize(("slowdown", "single"), [(None, 2.0), (2.0, None), (1.0, 1.0)])
def test_no_gap_to_close(slowdown: float | None, single: float | None) -> None:
    assert gap_closed(slowdown, single) is None


def test_folds_are_joined_in_order() -> None:
    whole = joined([_choices(a=1, b=2), _choices(c=3)])
    assert whole.cost.tolist() == [1, 2, 3] and whole.scenarios == ("a", "b", "c")


def test_times_are_left_as_they_are() -> None:
    cost = np.array([0, UNTIMED - 1, UNTIMED, FORBIDDEN])
    assert penalise_untimed(cost).tolist() == [0, UNTIMED - 1, UNTIMED_PENALTY, UNTIMED_PENALTY]
