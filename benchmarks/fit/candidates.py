"""How much of a full search do the first few candidates of a module reach, on what its fit has not seen?

    python -m benchmarks.fit.candidates treegen.yaml examples/matmul/treegen.yaml

For each table, five folds of scenarios, and folds of whole groups such as models: a module is printed of the
other scenarios, and `candidates(k, ...)` asked for the held-out ones. A figure is the geometric mean of the
fastest candidate's time over the best config's; a candidate without a time scores as 2x slower than the best.
Needs no GPU and no torch.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treegen.build import read_problems
from treegen.core.problem import UNIT, UNTIMED_PENALTY, Problem
from treegen.crossval.folds import Fold, folds_of, group_folds
from treegen.crossval.score import penalised
from treegen.emit.module import device_module
from treegen.fit.fit import fit
from treegen.read.spec import read_spec
from treegen.write.modules import Module, loaded

COUNTS = (1, 2, 3, 4, 8)


def printed(problem: Problem) -> tuple[str, dict[str, Any]]:
    """The text of the module that a fit of this problem prints, and its names."""
    kernel, device, found = problem.kernel, problem.device, fit(problem)
    text = device_module(kernel, device.key, device.limits, found)
    return text, loaded(Module(kernel, device, Path("printed"), text, found))


def slowdowns(problem: Problem, folds: Sequence[Fold]) -> list[float]:
    """The held-out mean for each of COUNTS."""
    cost, costs = penalised(problem.cost), []
    for fold in folds:
        _, module = printed(problem.rows(fold.train))
        configs = [module["Config"](c.variant, **dict(c.parameters)) for c in problem.configs]
        column = {config: place for place, config in enumerate(configs)}
        for row in fold.test.tolist():
            point = {name: int(problem.column(name)[row]) for name in problem.kernel.features}
            places = [column.get(config) for config in module["candidates"](max(COUNTS), **point)]
            listed = [UNTIMED_PENALTY if place is None else cost[row, place] for place in places]
            costs.append([min(listed[:count]) for count in COUNTS])
    return [math.exp(mean / UNIT) for mean in np.array(costs).mean(axis=0).tolist()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line per table: figures of scenarios that were held out, then of groups."""
    parser = argparse.ArgumentParser(description="Judge the candidates of modules on held-out scenarios.")
    parser.add_argument("specs", nargs="*", type=Path, default=[Path("treegen.yaml")], metavar="SPEC")
    specs = [read_spec(path) for path in parser.parse_args(arguments).specs]
    print(f"{'table':34}{'held out':10}" + "".join(f"{f'best of {count}':>12}" for count in COUNTS))
    for problem in [problem for spec in specs for problem in read_problems(spec)]:
        name = f"{problem.kernel.name} {problem.device.key}"
        if not set(problem.kernel.features) <= set(problem.names):
            print(f"{name:34}lacks features that `candidates` takes")
            continue
        for parts, folds in (("scenarios", folds_of(problem)), ("groups", group_folds(problem))):
            if folds:
                figures = "".join(f"{value:12.3f}" for value in slowdowns(problem, folds))
                print(f"{name:34}{parts:10}{figures}", flush=True)


if __name__ == "__main__":
    main()
