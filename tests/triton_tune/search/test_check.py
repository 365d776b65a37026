"""The check before a search: what it tries, and when it gives up."""

import pytest
from tuning_builders import Silent, Surface, SurfaceBench, surface

from triton_tune.core.problem import Times
from triton_tune.search.check import CHECK_SHARE, PROBED, CheckFirst
from triton_tune.search.loop import tune
from triton_tune.search.strategies import Full
from tuning_table.table import Visit


def checked(there: Surface, visits: list[Visit], budget: float = 1e6) -> CheckFirst:
    """Run a sweep to its end, which adds to `visits`."""
    strategy = CheckFirst(Full(there.problem), there.problem)
    tune(strategy, SurfaceBench(there), Times(visits), visits.append, Silent(), budget=budget)
    return strategy


@pytest.mark.parametrize("fails", ["s1", "*"])
def test_the_first_config_of_each_scenario_comes_first_and_then_the_strategy(fails: str) -> None:
    there = surface(configs=4, failing=frozenset({(fails, "c0"), ("*", "c3")}))
    visits: list[Visit] = []
    assert not checked(there, visits).gave_up
    first = visits[:24]
    assert {visit.scenario for visit in first} == set(there.problem.scenarios)
    assert all(visit.cells.keys() == {"c0"} for visit in first)
    assert Times(visits).num_measured() == there.problem.possible


@pytest.mark.parametrize("works", [0, 11])
def test_it_gives_up_where_no_config_works_in_most_scenarios(works: int) -> None:
    there = surface(
        configs=4, failing=frozenset((f"s{i}", f"c{c}") for i in range(works, 24) for c in range(4))
    )
    visits: list[Visit] = []
    strategy = checked(there, visits)
    assert strategy.gave_up and len(visits) == 24 + PROBED
    assert Times(visits).num_measured() == 24 + PROBED * 3
    again = CheckFirst(Full(there.problem), there.problem)
    assert again.next_round(Times(visits), 0.0) is None and again.gave_up  # a later run, from the table


def test_half_of_the_scenarios_may_fail_and_the_check_ends_by_its_share() -> None:
    there = surface(configs=4, failing=frozenset((f"s{i}", f"c{c}") for i in range(12) for c in range(4)))
    assert not checked(there, []).gave_up
    later = CheckFirst(Full(there.problem), there.problem).next_round(Times(), CHECK_SHARE)
    assert later is not None and later.share == 1.0
