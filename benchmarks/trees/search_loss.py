"""The loss of a search, by a full sweep of scenarios that it did not tune."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from attn_kernels.core.config import Config as LaunchConfig
from attn_kernels.tuning.scenarios.scenario import digest
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.space.space import ATTENTION, find_possible, gpu_of
from benchmarks.trees.score_choices import Slowdowns, TimedTable, launch_config, summary
from treegen.core.spec import Config
from triton_tune.core.problem import Times
from triton_tune.run.progress import Silent
from triton_tune.run.replay import ReplayBench, problem_of
from triton_tune.search.loop import tune
from triton_tune.search.race import Race, RaceRules
from tuning_table import read_run

BUDGETS = (100.0, 150.0, 200.0, 250.0, 300.0)  # seconds of the replay's clock
RULES = RaceRules(explore=(3, 1, 1), refine=2)  # for sweeps of 48 scenarios; the committed tables have 1,080


@dataclass(frozen=True)
class ReplayedRace:
    """A race on a recorded sweep: the share of cells that it timed, and the loss of its best configs."""

    seconds: float
    share: float
    lost: Slowdowns


@dataclass(frozen=True)
class SearchLoss:
    """The cells that a device's tuning run timed, and the loss of its search."""

    device: str
    seconds: float
    cells_measured: int
    cells_possible: int
    portfolio: Sequence[str]  # configs timed wherever they may be launched
    lost: Slowdowns  # by the best of the portfolio
    replayed: Sequence[ReplayedRace]


def search_loss(tuned: TimedTable, untuned: TimedTable) -> SearchLoss | None:
    """The loss of a run's search; None for a run without a named scenario set. Raises TuningError."""
    configs = portfolio(tuned)
    course = tuned.problem.table.provenance.get("summary", {})
    if configs is None or "cells_possible" not in course:
        return None
    return SearchLoss(
        tuned.device,
        course["seconds"],
        course["cells_measured"],
        course["cells_possible"],
        [str(launch_config(config)) for config in configs],
        best_of(configs, untuned),
        replay(untuned.problem.table.folder, BUDGETS),
    )


def portfolio(tuned: TimedTable) -> list[Config] | None:
    """The configs that were timed in every scenario where they may be launched.

    None where the table's scenarios are not those of a named set, so that the candidates are not known.
    """
    problem, run = tuned.problem, tuned.problem.table.provenance
    name = str(run.get("scenario_set", "")).split(" ")[0]
    if name not in SETS:
        return None
    seed = int(run.get("seed", 0))
    scenarios = SETS[name](seed)
    if run["scenario_set"] != f"{name} (digest {digest(scenarios)})":
        return None
    columns = np.flatnonzero(~np.isnan(tuned.times).all(axis=0)).tolist()
    configs = {launch_config(problem.configs[column]): column for column in columns}
    found = find_possible(scenarios, list(configs), gpu_of(run["device"]), seed).problem.candidates
    rows = {scenario: row for row, scenario in enumerate(problem.scenarios)}

    def is_timed(config: LaunchConfig, column: int) -> bool:
        launched = [scenario for scenario, candidates in found.items() if str(config) in candidates]
        return all(s in rows and not np.isnan(tuned.times[rows[s], column]) for s in launched)

    return [problem.configs[column] for config, column in configs.items() if is_timed(config, column)]


def best_of(configs: Sequence[Config], table: TimedTable) -> Slowdowns:
    """The slowdowns of the best of these configs in each scenario."""
    times = table.times[
        :, [column for column, config in enumerate(table.problem.configs) if config in configs]
    ]
    least = np.where(np.isnan(times), np.inf, times).min(axis=1, initial=np.inf)
    return summary(np.where(np.isinf(least), np.nan, least / table.best))


def replay(folder: Path, budgets: Sequence[float]) -> list[ReplayedRace]:
    """Races of these seconds of the replay's clock on the sweep in `folder`. Raises TuningError."""
    recorded = read_run(folder)
    problem = problem_of(recorded, ATTENTION)
    every = Times(recorded.visits)
    found = []
    for budget in budgets:
        times = Times()
        bench = ReplayBench(recorded, problem)
        tune(Race(problem, RULES), bench, times, lambda visit: None, Silent(), budget=budget)
        ratios = []
        for scenario in problem.scenarios:
            medians = times.medians(scenario)
            best = min(medians, key=medians.__getitem__, default=None)
            ratios.append(math.nan if best is None else every.slowdowns(scenario).get(best, math.nan))
        found.append(ReplayedRace(budget, times.num_measured() / problem.possible, summary(np.array(ratios))))
    return found
