"""Figures of scored choices, against cases computed by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from treegen_builders import NARROW, SIDES, WIDE, planted, problem

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split
from treegen.core.problem import FORBIDDEN, UNIT, UNTIMED, UNTIMED_PENALTY
from treegen.core.table import Cells
from treegen.crossval.choices import Choices, cells_of, costs_of, decisions_of, quality, score_decisions
from treegen.fit.fit import fit


def _cost(slowdown: float) -> int:
    return round(math.log(slowdown) * UNIT)


def _choices(**cost: int) -> Choices:
    """A choice in each scenario."""
    return Choices(np.array(list(cost.values()), dtype=np.int64), tuple(cost))


def test_the_mean_is_geometric_and_an_untimed_choice_counts_as_2x_the_best() -> None:
    found = quality(_choices(a=_cost(8), b=UNTIMED, c=UNTIMED, d=FORBIDDEN, e=0, f=0), Cells.MEASURED)
    assert found.slowdown == pytest.approx((8 * 2 * 2 * 2) ** (1 / 6), abs=1e-5)
    assert (found.choices, found.unmeasured, found.failed, found.untimed) == (6, 2, 1, 0.5)
    assert found.agreement == pytest.approx(2 / 6)


def test_the_worst_is_a_measured_time_and_names_the_first_scenario_in_the_alphabet() -> None:
    found = quality(
        _choices(c=_cost(1.5), b=_cost(1.5), a=_cost(1.1), d=UNTIMED, e=FORBIDDEN), Cells.MEASURED
    )
    assert found.worst == pytest.approx(1.5, abs=1e-5) and found.worst_scenario == "b"


def test_choices_without_any_time_have_no_worst() -> None:
    found = quality(_choices(a=UNTIMED, b=FORBIDDEN), Cells.MEASURED)
    assert found.slowdown == pytest.approx(2, abs=1e-5)
    assert (found.worst, found.worst_scenario) == (None, None)
    assert found.percentile95 == math.exp(UNTIMED_PENALTY / UNIT)


@pytest.mark.parametrize(("choices", "place"), [(1, 1), (19, 19), (20, 19), (21, 20), (40, 38), (100, 95)])
def test_95_percent_are_no_slower(choices: int, place: int) -> None:
    cost = np.random.RandomState(0).permutation(np.arange(1, choices + 1)) * 1000
    found = quality(Choices(cost.astype(np.int64), ("s",) * choices), Cells.MEASURED)
    assert found.percentile95 == math.exp(place * 1000 / UNIT)


def test_a_table_of_winners_has_agreement_only() -> None:
    found = quality(_choices(a=0, b=UNIT, c=0, d=FORBIDDEN), Cells.WINNERS)
    assert (found.agreement, found.unmeasured, found.failed) == (0.5, 0, 1)
    assert {found.slowdown, found.percentile95, found.worst} == {None}


def test_rows_cost_what_their_choices_cost_also_where_constraints_forbid_some(tmp_path: Path) -> None:
    """A constraint forbids the narrow config with 32 heads."""
    shapes = [(rows, columns, heads) for rows in SIDES for columns in SIDES for heads in (2, 32)]
    made = problem(tmp_path, {"classes": {"few": "heads <= 4", "many": "otherwise"}}, shapes=shapes)
    known, unseen = made.rows(np.arange(0, 32, 2)), made.rows(np.arange(1, 32, 2))
    narrow, medium, wide = made.configs
    rows = Row(narrow, {}, (medium,)), Row(wide, {"many": narrow}, ())
    planned = Heuristic((RegimeRows(made.kernel.regimes[0].name, Split("area", 64, 0, 1), rows),))
    assert cells_of(planned) == 3
    for heuristic in (fit(known), planned):
        scored = score_decisions(decisions_of(heuristic, unseen), unseen)
        assert scored.cost.tolist() == costs_of(heuristic, unseen).tolist()
        assert scored.cost.max() < FORBIDDEN and scored.scenarios == unseen.scenarios


def test_a_config_that_the_other_table_lacks_was_not_measured_there(tmp_path: Path) -> None:
    made = problem(tmp_path / "a")
    other = problem(tmp_path / "b", configs=(NARROW, WIDE), times=lambda s: planted(s)[::2])
    narrow, medium, _ = made.configs
    assert set(score_decisions((medium,) * len(other.cost), other).cost) == {UNTIMED}
    assert UNTIMED not in score_decisions((narrow,) * len(other.cost), other).cost
