"""Checking a table's choices again: what became slower is stale, and noise is not."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from tuning_builders import SurfaceBench, recorded_of, surface

from triton_tune.core.errors import TuningError
from triton_tune.core.problem import PlannedVisit, Times
from triton_tune.run.progress import Silent
from triton_tune.run.recheck import SECONDS, recheck
from triton_tune.search.loop import tune
from triton_tune.search.strategies import Full
from tuning_table.table import Cell, Failure, RecordedRun, Visit

NOISE = 0.01
THERE = surface(scenarios=48, configs=12, noise=NOISE)
PROBLEM = THERE.problem


def swept() -> RecordedRun:
    visits: list[Visit] = []
    tune(Full(PROBLEM), SurfaceBench(THERE), Times(), visits.append, Silent(), budget=1e6)
    return recorded_of(PROBLEM, visits)


TABLE = swept()
FASTEST = {
    s: min(row, key=row.__getitem__) for s in PROBLEM.scenarios if (row := Times(TABLE.visits).medians(s))
}
MOST_CHOSEN = max(PROBLEM.configs, key=list(FASTEST.values()).count)


@dataclass
class Later(SurfaceBench):
    """The same device after a change: noise of another day, and configs that take longer or fail."""

    factors: Mapping[str, float] = field(default_factory=dict)
    failing: str = ""
    day: int = 0
    cells: list[tuple[str, str]] = field(default_factory=list)

    def measure(self, tasks: Sequence[PlannedVisit], until: float) -> Iterator[Visit]:
        for visit in super().measure(tasks, until):
            cells: dict[str, Cell] = {}
            for config in visit.cells:
                time = THERE.cell(visit.scenario, config, 10 + 100 * self.day + visit.repeat)
                assert isinstance(time, float)
                self.cells.append((visit.scenario, config))
                cells[config] = time * self.factors.get(config, 1.0)
                if config == self.failing:
                    cells[config] = Failure("no longer compiles")
            yield Visit(visit.scenario, visit.repeat, cells)


def stale_in(lines: list[str]) -> list[str]:
    return [line.split()[1].rstrip(",") for line in lines if line.startswith("stale")]


@pytest.mark.parametrize("day", range(8))
def test_noise_and_what_slows_every_config_alike_are_not_reported(day: int) -> None:
    factor = 1.0 if day % 2 else 2.0
    bench = Later(THERE, visit_s=0.1, day=day, factors=dict.fromkeys(PROBLEM.configs, factor))
    lines, stale = recheck(TABLE, PROBLEM, bench, {})
    assert not stale and not stale_in(lines)
    (drift,) = re.findall(r"take ([\d.]+)x the table's times", "\n".join(lines))
    assert float(drift) == pytest.approx(factor, rel=0.05)


@pytest.mark.parametrize("day", range(5))
def test_a_config_that_became_slower_is_reported_and_no_other(day: int) -> None:
    bench = Later(THERE, visit_s=0.1, day=day, factors={MOST_CHOSEN: 1.5})
    lines, stale = recheck(TABLE, PROBLEM, bench, {})
    assert stale and stale_in(lines) == [MOST_CHOSEN]


def test_a_config_that_no_longer_runs_is_reported_with_the_reason() -> None:
    lines, stale = recheck(TABLE, PROBLEM, Later(THERE, visit_s=0.1, failing=MOST_CHOSEN), {})
    assert stale and stale_in(lines) == [MOST_CHOSEN] and "no longer compiles" in "\n".join(lines)


def test_the_modules_choices_are_asked_about_with_thirty_cells_in_a_minute() -> None:
    chosen = {s: "c1" if index % 2 else "c2" for index, s in enumerate(PROBLEM.scenarios)}
    bench = Later(THERE, visit_s=0.1, factors={"c1": 3.0})
    lines, stale = recheck(TABLE, PROBLEM, bench, chosen)
    assert stale and "c1" in stale_in(lines)
    assert len(set(bench.cells)) == 30 and {chosen[s] for s, _ in bench.cells} == {"c1", "c2"}
    assert bench.deadlines[0] <= 100.0 + SECONDS and bench.now < 100.0 + SECONDS


def test_configs_and_scenarios_that_are_no_more_are_left_out() -> None:
    smaller = surface(scenarios=20, configs=6, noise=NOISE)
    lines, stale = recheck(TABLE, smaller.problem, Later(THERE, visit_s=0.1), {})
    assert not stale and lines
    none = recorded_of(PROBLEM, [Visit("s0", 1, {"c0": 1.0})])
    with pytest.raises(TuningError):
        recheck(none, PROBLEM, Later(THERE), {})
