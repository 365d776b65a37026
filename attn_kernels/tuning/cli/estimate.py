"""Estimate the measurements and the duration of a tuning run: `attn-tune --dry-run`."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from attn_kernels.tuning.space.candidates import Possible
from triton_tune.bench.replay import CELL_S, COMPILE_S, VISIT_S
from triton_tune.core.problem import PlannedVisit, SearchProblem, Times
from triton_tune.search.search import STRATEGIES

REFERENCE_WORKERS = 15  # processes with which COMPILE_S was measured


@dataclass(frozen=True)
class RunEstimate:
    """Settings of a run, from which its duration is estimated."""

    strategy: str
    budget: float  # seconds, of all runs of the table
    spent: float  # seconds that earlier runs took
    times: Times  # what earlier runs measured
    workers: int  # processes that compile
    devices: int

    def seconds(self, problem: SearchProblem, tasks: Iterable[PlannedVisit]) -> float:
        """Estimate the seconds that these visits take, with compiling; scaled from an H100."""
        visits = list(tasks)
        launches = {(problem.shape(task.scenario), config) for task in visits for config in task.configs}
        compiling = COMPILE_S * REFERENCE_WORKERS / max(1, self.workers) * len(launches)
        cells = sum(len(task.configs) for task in visits)
        return compiling + (VISIT_S * len(visits) + CELL_S * cells) / self.devices


def describe(possible: Possible, kinds: Counter[str], estimate: RunEstimate) -> list[str]:
    """Describe the run in lines. kinds: the number of scenarios of each kind of batch."""
    problem = possible.problem
    shapes = Counter(problem.shape(scenario) for scenario in problem.scenarios)
    variants = Counter(problem.variants[config] for config in problem.configs)
    everything = [PlannedVisit(scenario, 1, row) for scenario, row in problem.candidates.items()]
    lines = [
        f"{len(problem.scenarios)} scenarios at {len(shapes)} shapes: "
        + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()),
        f"{len(problem.configs)} configs: "
        + ", ".join(f"{count} {name}" for name, count in variants.most_common()),
        f"{problem.possible} cells may be measured; the rules dropped:",
        *(f"  {count} {reason}" for reason, count in possible.dropped.items()),
        f"to measure each once would take about {estimate.seconds(problem, everything):.0f} s; "
        f"the budget is {estimate.budget:.0f} s, of which {estimate.spent:.0f} s are used up",
    ]
    if estimate.spent >= estimate.budget:
        return [*lines, "the budget is used up; the same command with a larger --budget goes on"]
    planned = STRATEGIES[estimate.strategy](problem).next_round(
        estimate.times, estimate.spent / estimate.budget
    )
    if planned is None:
        return [*lines, "nothing is left to measure"]
    cells = sum(len(task.configs) for task in planned.tasks)
    title = f"next round of the strategy {estimate.strategy}: {planned.name}, {len(planned.tasks)} scenarios"
    needed = estimate.seconds(problem, planned.tasks)
    left = planned.share * estimate.budget - estimate.spent  # the round is cut off then
    if needed <= left:
        return [*lines, f"{title}, {cells} cells, about {needed:.0f} s"]
    enough = math.ceil((estimate.spent + needed) / planned.share)
    return [
        *lines,
        f"{title}, {left:.0f} s of the budget for about {cells * left / needed:.0f} of {cells} cells; "
        f"--budget {enough} gives time for all",
    ]
