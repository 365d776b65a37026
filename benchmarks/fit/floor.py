"""What trees of few leaves can reach at best: in sample without prices, beside held-out figures.

    python -m benchmarks.fit.floor treegen.yaml examples/matmul/treegen.yaml

A case is a spec, for all of its tables, or `SPEC:FOLDER`, as for `benchmarks.fit.tables`. In sample, the
search pays no prices, and a leaf may hold one scenario. The held-out figures are of treegen's fit and of
greedy growth within 16 leaves and 6 splits in a row. Needs no GPU and no torch.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.fit.optimal import matrices, slowdown, unpriced
from benchmarks.fit.prover.optimal import total
from benchmarks.fit.tables import OURS, Case, cases, held_out, ways
from treegen.core.problem import Problem
from treegen.core.spec import Budget
from treegen.core.table import Cells
from treegen.crossval.choices import Choices, quality
from treegen.fit.local_search import local_search

FEW, MANY = Budget(6, 16), Budget(8, 32)
FOLDS = 5


def in_sample(problem: Problem, budget: Budget) -> float:
    """Geometric mean slowdown of the best tree that the search finds, on the scenarios that it reads."""
    is_low, loss = matrices(problem)
    known = unpriced(is_low, loss, budget.max_depth, budget.max_leaves)
    tree = local_search(known, known.best_config(known.all_rows))
    return slowdown(total(tree, is_low, loss), len(loss))


def line(case: Case) -> str:
    """A case's figures."""
    limits = replace(case.problem.kernel.budget, max_depth=FEW.max_depth, max_leaves=FEW.max_leaves)
    few = replace(case, problem=replace(case.problem, kernel=replace(case.problem.kernel, budget=limits)))
    every, found = ways(stages=False), []
    for name in (OURS, "greedy"):
        held = held_out(few, every[name], [None] * FOLDS, FOLDS, 1)
        found.append(quality(Choices(held.cost, held.scenarios), case.problem.table.cells))
    ours, greedy = found
    figures = [in_sample(case.problem, budget) for budget in (FEW, MANY)]
    figures += [
        figure or math.inf for figure in (ours.slowdown, ours.percentile95, ours.worst, greedy.slowdown)
    ]
    return f"{case.name:40}" + "".join(f"{figure:12.3f}" for figure in figures)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line per case."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=["treegen.yaml"], metavar="SPEC[:FOLDER]")
    options = parser.parse_args(arguments)
    names = ("16 leaves", "32 leaves", "held out", "95%", "worst", "greedy")
    print(f"{'in sample, then held out with 16 leaves':40}" + "".join(f"{name:>12}" for name in names))
    for case in cases(options.cases):
        if case.problem.table.cells is not Cells.WINNERS:  # those have no times
            print(line(case), flush=True)


if __name__ == "__main__":
    main()
