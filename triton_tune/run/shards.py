"""The parts of a run that several hosts measure: `--shard`."""

import argparse
import random
import re
from dataclasses import dataclass, replace

from triton_tune.core.errors import TuningError
from triton_tune.core.problem import SearchProblem, ShapeKey

# Seconds on average with an H100 and 15 processes; shards depend only on their proportions.
COMPILE_S, VISIT_S, CELL_S = 0.13, 0.06, 0.008


@dataclass(frozen=True)
class Shard:
    """The part `index` of `count`, from 1."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"

    @property
    def suffix(self) -> str:
        """The end of the folder's name for this shard's table."""
        return f"-shard-{self.index}-of-{self.count}"


def shard_from(text: str) -> Shard:
    """The shard that `2/8` stands for. Raises ArgumentTypeError."""
    match = re.fullmatch(r"(\d{1,5})/(\d{1,5})", text)
    shard = Shard(int(match[1]), int(match[2])) if match else Shard(0, 0)
    if not 1 <= shard.index <= shard.count:
        problem = f"{text!r:.40} is no shard: write 1/8 for the first of eight, up to 8/8"
        raise argparse.ArgumentTypeError(problem)
    return shard


def problem_of_shard(problem: SearchProblem, shard: Shard | None) -> SearchProblem:
    """The problem reduced to this shard's scenarios (None: unchanged). Shards take about equally long.

    Scenarios of one shape stay together where possible, so that few hosts compile the same kernels. Each
    scenario is in exactly one shard. Raises TuningError for more shards than scenarios.
    """
    if shard is None:
        return problem
    shapes: dict[ShapeKey, list[str]] = {}
    for scenario in problem.scenarios:
        if problem.candidates[scenario]:
            shapes.setdefault(problem.shape(scenario), []).append(scenario)
    total = sum(map(len, shapes.values()))
    if shard.count > total:
        raise TuningError(f"--shard {shard}: there are only {total} scenarios to divide")
    costs: dict[str, float] = {}
    for shape, scenarios in sorted(shapes.items()):
        kernels = {config for scenario in scenarios for config in problem.candidates[scenario]}
        compiling = COMPILE_S * len(kernels) / len(scenarios)
        random.Random(f"{problem.seed}/{shape}").shuffle(scenarios)
        for scenario in scenarios:
            costs[scenario] = compiling + estimated_s(len(problem.candidates[scenario]))
    mine, before, whole = set(), 0.0, sum(costs.values())
    for scenario, cost in costs.items():
        if int((before + cost / 2) / whole * shard.count) == shard.index - 1:
            mine.add(scenario)
        before += cost
    if not mine:
        raise TuningError(f"--shard {shard}: has no scenario, as some take long: use fewer shards")
    return replace(
        problem,
        features={s: row for s, row in problem.features.items() if s in mine},
        candidates={s: row for s, row in problem.candidates.items() if s in mine},
    )


def estimated_s(cells: int) -> float:
    """Estimate the seconds of a visit without compiling, on an H100."""
    return VISIT_S + CELL_S * cells
