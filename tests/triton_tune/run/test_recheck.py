"""Checking a table's choices again: what became slower is stale, and noise is not."""

import math
import random
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tuning_builders import Silent, SurfaceBench, full, recorded_of, surface

from attn_kernels.tuning.space.space import ATTENTION
from triton_tune.core.errors import TuningError
from triton_tune.core.problem import SearchProblem, Times
from triton_tune.run.recheck import SECONDS, recheck
from triton_tune.run.shards import CELL_S, COMPILE_S, VISIT_S
from triton_tune.search.loop import tune
from triton_tune.search.neighbours import Distances
from tuning_table import read_run
from tuning_table.table import Failure, Visit

ROOT = Path(__file__).resolve().parents[3]
TABLES, PAGE = ROOT / "tuning_data/unified_attention", ROOT / "docs/recheck.md"
NOISE = 0.01
THERE = surface(scenarios=48, configs=12, noise=NOISE)
PROBLEM = THERE.problem


VISITS = []
tune(full(PROBLEM), SurfaceBench(THERE), Times(), VISITS.append, Silent(), budget=1e6)  # a full sweep
TABLE = recorded_of(PROBLEM, VISITS)
FASTEST = {
    s: min(row, key=row.__getitem__) for s in PROBLEM.scenarios if (row := Times(TABLE.visits).medians(s))
}
MOST_CHOSEN = max(PROBLEM.configs, key=list(FASTEST.values()).count)


@dataclass
class Later(SurfaceBench):
    """The same device after a change: noise of another day, and configs that take longer or fail."""

    factors: Mapping[str, float] = field(default_factory=dict)
    day: int = 0
    jitter: float = 0.0
    cells: set[tuple[str, str]] = field(default_factory=set)

    def measure(self, tasks, until):
        for visit in super().measure(tasks, until):
            self.cells |= {(visit.scenario, config) for config in visit.cells}
            yield Visit(visit.scenario, visit.repeat, {c: self.cell(visit, c) for c in visit.cells})

    def cell(self, visit, config):
        time = THERE.cell(visit.scenario, config, 10 + 100 * self.day + visit.repeat)
        assert isinstance(time, float)
        time *= self.factors.get(config, 1.0)
        noise = random.Random(f"{visit.scenario} {config} {visit.repeat} {self.day}")
        time *= math.exp(noise.gauss(0.0, self.jitter))
        return time if time < math.inf else Failure("no longer compiles")


def stale_in(lines):
    return [line.split()[1].rstrip(",") for line in lines if line.startswith("stale ")]


@pytest.mark.parametrize("day", range(4))
def test_noise_and_what_slows_every_config_alike_are_not_reported(day):
    factor = 1.0 if day % 2 else 2.0
    bench = Later(THERE, visit_s=0.1, day=day, factors=dict.fromkeys(PROBLEM.configs, factor))
    lines, stale = recheck(TABLE, PROBLEM, bench, {})
    assert not stale and not stale_in(lines)
    noisy_lines, doubted = recheck(TABLE, PROBLEM, Later(THERE, visit_s=0.1, day=day, jitter=0.2), {})
    assert doubted and any(line.startswith("unsure ") for line in noisy_lines)  # too noisy to tell
    (drift,) = re.findall(r"take ([\d.]+)x the table's times", "\n".join(lines))
    assert float(drift) == pytest.approx(factor, rel=0.05)


@pytest.mark.parametrize(("slower", "why"), [(1.5, "x as fast now"), (math.inf, "no longer compiles")])
def test_a_config_that_became_slower_or_fails_is_reported_and_no_other(slower, why):
    for day in range(3):
        bench = Later(THERE, visit_s=0.1, day=day, factors={MOST_CHOSEN: slower})
        lines, stale = recheck(TABLE, PROBLEM, bench, {})
        assert stale and stale_in(lines) == [MOST_CHOSEN] and why in "\n".join(lines)


def test_the_modules_choices_are_asked_about_with_thirty_cells_in_a_minute():
    chosen = {s: "c1" if index % 2 else "c2" for index, s in enumerate(PROBLEM.scenarios)}
    bench = Later(THERE, visit_s=0.1, factors={"c1": 3.0})
    lines, stale = recheck(TABLE, PROBLEM, bench, chosen)
    assert stale and "c1" in stale_in(lines)
    assert len(bench.cells) == 30 and {chosen[s] for s, _ in bench.cells} == {"c1", "c2"}
    assert len(bench.begun) == 30  # three times in each of ten scenarios
    mine, others = ([s for s, config in chosen.items() if config == name] for name in ("c2", "c1"))
    gaps = dict(zip(mine, Distances(PROBLEM).matrix(mine, others).min(axis=1), strict=True))
    near, asked = sorted(mine, key=gaps.__getitem__), {s for s, _ in bench.cells if s in mine}
    # They are spread over the half that is near the others.
    assert asked <= {*near[:12]} and not asked <= {*near[: len(asked)]}
    assert bench.deadlines[0] <= 100.0 + SECONDS and bench.now < 100.0 + SECONDS


def noisy(noise):
    provenance = {**TABLE.header.provenance, "summary": {"noise_p90": noise}}
    return replace(TABLE, header=replace(TABLE.header, provenance=provenance))


def test_a_table_too_noisy_to_tell_a_loss_of_fifteen_percent_is_refused_before_anything_is_timed():
    bench = Later(THERE, visit_s=0.1, factors={MOST_CHOSEN: 1.5})
    for table in (noisy(0.08), recorded_of(PROBLEM, [Visit("s0", 1, {"c0": 1.0})])):  # nothing to compare
        with pytest.raises(TuningError):
            recheck(table, PROBLEM, bench, {})
        assert not bench.cells
    smaller = surface(scenarios=20, configs=6, noise=NOISE)  # the others are no more
    lines, stale = recheck(TABLE, smaller.problem, Later(THERE, visit_s=0.1), {})
    assert lines and not stale
    assert stale_in(recheck(noisy(0.07), PROBLEM, bench, {})[0]) == [MOST_CHOSEN]


def problem_of(recorded):
    """The problem whose candidates are the cells of a table."""
    times, header = Times(recorded.visits), recorded.header
    scenarios = {s: values for s, values in recorded.scenarios.items() if times.measured(s)}
    return SearchProblem(
        features={s: dict(zip(header.features, values, strict=True)) for s, values in scenarios.items()},
        candidates={s: tuple(times.measured(s)) for s in scenarios},
        variants={config.id: config.variant or "" for config in header.configs},
        likeness=ATTENTION,
    )


class TableBench:
    """Returns a table's repeats of a cell one after the other, by the clock of an H100 with 15 processes."""

    def __init__(self, recorded):
        self._cells, self._problem = Times(recorded.visits), problem_of(recorded)
        self._now = 0.0

    def clock(self):
        return self._now

    def compile(self, tasks, until, advance):
        kernels = {(self._problem.shape(task.scenario), config) for task in tasks for config in task.configs}
        self._now += COMPILE_S * len(kernels)
        return tuple(tasks)

    def measure(self, tasks, until):
        for task in tasks:
            self._now += VISIT_S + CELL_S * len(task.configs)
            cells = self._cells.measured(task.scenario)
            row = {config: cells[config][(task.repeat - 1) % len(cells[config])] for config in task.configs}
            yield Visit(task.scenario, task.repeat, row)


def of_real_tables(before, after):
    """Check a shipped table again on the times of another one, in the cells that both have."""
    known = Times(after.visits)
    visits = []
    for visit in before.visits:
        there = known.measured(visit.scenario)
        cells = {config: cell for config, cell in visit.cells.items() if config in there}
        visits += [replace(visit, cells=cells)] if cells else []
    both = replace(before, visits=tuple(visits))
    return recheck(both, problem_of(both), TableBench(after), {})


def test_the_page_shows_what_a_check_of_an_h100s_table_on_an_h200_prints():
    lines, stale = of_real_tables(read_run(TABLES / "nvidia_h100"), read_run(TABLES / "nvidia_h200"))
    assert not stale and textwrap.indent("\n".join(lines), "    ") in PAGE.read_text()
