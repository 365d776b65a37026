"""The check before a search: what it tries, and when it gives up."""

import pytest
from tuning_builders import Silent, Surface, SurfaceBench, full, surface

from triton_tune.core.problem import Times
from triton_tune.search.loop import tune
from triton_tune.search.race import CHECK_SHARE, Race
from triton_tune.search.race import FIRST_ROUND as CHECKED
from tuning_table.table import Visit


def checked(there: Surface, visits: list[Visit]) -> Race:
    """Run a sweep to its end, which adds to `visits`."""
    strategy = full(there.problem)
    tune(strategy, SurfaceBench(there), Times(visits), visits.append, Silent(), budget=1e6)
    return strategy


@pytest.mark.parametrize("fails", ["s1", "*"])
def test_two_configs_of_the_middle_come_first_where_the_strategy_begins(fails: str) -> None:
    there = surface(configs=4, failing=frozenset({(fails, "c1"), (fails, "c2")}))
    visits: list[Visit] = []
    assert not checked(there, visits).gave_up
    first, then = visits[:CHECKED], visits[CHECKED : 2 * CHECKED]
    assert all(visit.cells.keys() == {"c1", "c2"} for visit in first)
    assert {visit.scenario for visit in then} == {visit.scenario for visit in first}
    assert all(visit.cells.keys() == {"c0", "c3"} for visit in then)
    assert Times(visits).num_measured() == there.problem.possible


@pytest.mark.parametrize("works", [0, 1])
def test_it_gives_up_once_no_config_works_in_most_of_these_scenarios(works: int) -> None:
    first: list[Visit] = []
    checked(surface(configs=4), first)
    bad = [visit.scenario for visit in first[works:CHECKED]]
    there = surface(configs=4, failing=frozenset((s, f"c{c}") for s in bad for c in range(4)))
    visits: list[Visit] = []
    strategy = checked(there, visits)
    assert bool(strategy.gave_up) is (works < 1)
    assert len({visit.scenario for visit in visits}) == (CHECKED if works < 1 else 24)
    again = full(there.problem)  # a later run, from the table
    assert again.next_round(Times(visits), 0.0) is None and bool(again.gave_up) is (works < 1)


def test_the_check_ends_by_its_share() -> None:
    there = surface(configs=4)
    later = full(there.problem).next_round(Times(), CHECK_SHARE)
    assert later is not None and later.share == 1.0
