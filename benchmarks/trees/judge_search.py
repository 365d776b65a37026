"""What a search missed, and how far the best of many noisy times is too low."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from attn_kernels.core.config import Config
from attn_kernels.tuning.bench.replay import ReplayBench, problem_of
from attn_kernels.tuning.cli.progress import Silent
from attn_kernels.tuning.problem import Times
from attn_kernels.tuning.scenarios.scenario import digest
from attn_kernels.tuning.scenarios.serving import SETS
from attn_kernels.tuning.search.loop import tune
from attn_kernels.tuning.search.search import Race, RaceRules
from attn_kernels.tuning.space.candidates import find_possible, gpu_of
from benchmarks.trees.judge import Measured, Summary, summary
from treegen.core.table import Table
from tuning_table import read_run

# For a sweep of 48 scenarios, where the shipped tables have 1,080.
RULES = RaceRules(explore=(3, 1, 1), refine=2)


@dataclass(frozen=True)
class Optimism:
    """How much too low the best time of a scenario is, being the least of many noisy ones.

    second_look: a time of the config that another repeat finds best, over the best of the medians, as
    geometric mean. The two times are independent, so it is what the config that looked best really takes.
    """

    scenarios: int
    second_look: float


def optimism(scenarios: Sequence[Measured]) -> Optimism | None:
    """Chosen by the first repeat and read from the second, and the other way round, so that a drift between
    the repeats cancels; of the configs with two times, which are those that the first found near the best."""
    logs = []
    for scenario in scenarios:
        pairs = {config: times[:2] for config, times in scenario.repeats.items() if len(times) > 1}
        if not pairs:
            continue
        least = min(scenario.times[config] for config in pairs)
        for by, read in ((0, 1), (1, 0)):
            winner = min(pairs, key=lambda config: pairs[config][by])
            logs.append(math.log(pairs[winner][read] / least))
    return Optimism(len(logs) // 2, math.exp(sum(logs) / len(logs))) if logs else None


def portfolio_of(table: Table, scenarios: Sequence[Measured]) -> list[Config] | None:
    """The configs that were timed in every scenario where they may be. None where it cannot be told where
    that is: the table's scenarios are not those of the named set that it states."""
    name = str(table.provenance.get("scenario_set", "")).split(" ")[0]
    if name not in SETS:
        return None
    seed = int(table.provenance.get("seed", 0))
    drawn = SETS[name](seed)
    if table.provenance["scenario_set"] != f"{name} (digest {digest(drawn)})":
        return None
    configs = list(dict.fromkeys(config for scenario in scenarios for config in scenario.times))
    problem = find_possible(drawn, configs, gpu_of(table.provenance["device"]), seed).problem
    timed = {scenario.id: set(map(str, scenario.times)) for scenario in scenarios}
    missed = {
        config
        for scenario, candidates in problem.candidates.items()
        for config in candidates
        if config not in timed.get(scenario, ())
    }
    return [config for config in configs if str(config) not in missed]


def best_of(configs: Iterable[Config], scenarios: Sequence[Measured]) -> Summary:
    """The best that these configs have in each scenario, over the best of all."""
    own = list(configs)
    return summary(
        min((slow for c in own if (slow := scenario.slowdown(c)) is not None), default=None)
        for scenario in scenarios
    )


@dataclass(frozen=True)
class Replayed:
    """A race on a recorded sweep: the share of cells that it timed, and what its best configs lose."""

    seconds: float
    share: float
    lost: Summary


def replay(folder: Path, budgets: Sequence[float]) -> list[Replayed]:
    """Races of these seconds of the replay's clock on the sweep in `folder`. Raises TuningError."""
    recorded = read_run(folder)
    problem = problem_of(recorded)
    every = Times(recorded.visits)
    found = []
    for budget in budgets:
        times = Times()
        bench = ReplayBench(recorded, problem)
        tune(Race(problem, RULES), bench, times, lambda visit: None, Silent(), budget=budget)
        ratios = []
        for scenario in problem.scenarios:
            own = times.medians(scenario)
            best = min(own, key=own.__getitem__, default=None)
            ratios.append(None if best is None else every.slowdowns(scenario).get(best))
        found.append(Replayed(budget, times.num_measured() / problem.possible, summary(ratios)))
    return found
