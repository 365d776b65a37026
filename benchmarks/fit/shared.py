"""How much slower are the choices of one module for two GPUs than those of a module for each?

    python -m benchmarks.fit.shared treegen.yaml nvidia_h100 nvidia_h200

Of each kernel that has a table of both GPUs, a module is fitted to each table, and one to both: the cost of
a config in a scenario is the mean of both GPUs' costs. Each is judged by each GPU's table, by folds of models
that were left out, and by tables of other models that lie beside it. Figures are the geometric mean of the
choices' times over the best ones, the 95th percentile and the worst. Needs no GPU and no torch.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from treegen.core.heuristic import Heuristic
from treegen.core.problem import FORBIDDEN, UNTIMED, Problem
from treegen.crossval.folds import group_folds
from treegen.crossval.score import Ints, Quality, Score, quality
from treegen.fit.fit import fit
from treegen.read.problem import build_problem, read_table, spec_problem
from treegen.read.spec import read_spec

OTHERS = ("other_models_{}", "untuned_{}")  # tables of other models


def shared(one: Problem, other: Problem) -> Problem:
    """The scenarios of both tables, with the mean of both costs.

    A config without a time in one counts as untimed, and one that failed in one as failed. Raises ValueError
    for tables of other configs, or without a common scenario.
    """
    place = {scenario: row for row, scenario in enumerate(other.scenarios)}
    here = [row for row, scenario in enumerate(one.scenarios) if scenario in place]
    there = [place[one.scenarios[row]] for row in here]
    if one.configs != other.configs or not here:
        raise ValueError("the two tables have other configs, or no scenario in common")
    costs = np.stack([one.cost[here], other.cost[there]])
    mean = np.where((costs == UNTIMED).any(axis=0), UNTIMED, np.rint(costs.mean(axis=0)).astype(np.int64))
    return replace(one.rows(np.array(here)), cost=np.where((costs >= FORBIDDEN).any(axis=0), FORBIDDEN, mean))


def left_out(fitted: Problem, judged: Problem) -> Quality:
    """The figures of fits without each fold of models of `known`, by the times of `judged`."""
    place = {name: row for row, name in enumerate(judged.scenarios)}
    costs: list[Ints] = []
    ids: list[str] = []
    for fold in group_folds(fitted):
        rows = np.array([place[fitted.scenarios[row]] for row in fold.test])
        costs.append(Score.of(judged.rows(rows), fit(fitted.rows(fold.train))).cost)
        ids += judged.rows(rows).scenarios
    return quality(np.concatenate(costs), tuple(ids), judged.table.cells)


def figures(problems: Sequence[Problem]) -> Iterator[str]:
    """The lines of a kernel."""
    both = shared(*problems)
    ours: list[Heuristic] = [fit(problem) for problem in problems]
    joint = fit(both)
    yield f"{'':46}{'own module':>22}{'one for both':>22}{'other GPU':>22}"
    for number, problem in enumerate(problems):
        kernel, device, folder = problem.kernel, problem.device, problem.table.folder
        beside = [folder.parent / pattern.format(folder.name) for pattern in OTHERS]
        others = [build_problem(kernel, device, read_table(path)) for path in beside if path.is_dir()]
        for which, judged in (("its table", problem), *(("other models", other) for other in others)):
            qualities = (Score.of(judged, h).quality for h in (ours[number], joint, ours[1 - number]))
            yield f"{kernel.name} {device.key}, {which}".ljust(46) + "".join(map(text, qualities))
        qualities = (left_out(fitted, problem) for fitted in (problem, both))
        yield f"{kernel.name} {device.key}, left out".ljust(46) + "".join(map(text, qualities))


def text(q: Quality) -> str:
    mean, high, worst = (value or math.nan for value in (q.slowdown, q.percentile95, q.worst))
    return f"{mean:10.4f}{high:6.2f}{worst:6.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the lines of each kernel that has both tables."""
    parser = argparse.ArgumentParser(description="Judge one module for two GPUs.")
    parser.add_argument("spec", type=Path)
    parser.add_argument("devices", nargs=2)
    options = parser.parse_args(arguments)
    spec = read_spec(options.spec)
    for kernel in spec.kernels.values():
        if kernel.tables.keys() >= set(options.devices):
            tables = [(spec.devices[key], read_table(kernel.tables[key])) for key in options.devices]
            for line in figures([spec_problem(kernel, device, table) for device, table in tables]):
                print(line, flush=True)


if __name__ == "__main__":
    main()
