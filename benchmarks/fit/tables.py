"""Judge the stages of the fit on many tables: held-out slowdowns without each, beside the whole fit.

    python -m benchmarks.fit.tables treegen.yaml examples/matmul/treegen.yaml
    python -m benchmarks.fit.tables treegen.yaml:tuning_data/unified_attention/other_models_nvidia_h200

A case is a spec, for all of its tables, or `SPEC:FOLDER`, for one more table of a kernel of that spec. Every
way gets the same folds of scenarios and of groups. A choice without a time scores as 2x slower than the best.
`treegen eval` compares the fit with other methods. Needs no GPU and no torch.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from treegen.build import read_problems
from treegen.core.heuristic import Heuristic
from treegen.core.problem import UNIT, Problem
from treegen.core.spec import Budget, ModelClass, Spec
from treegen.core.table import Table
from treegen.crossval.choices import penalise_untimed
from treegen.crossval.folds import (
    Fold,
    Ints,
    cross_validate,
    folds_of,
    group_folds,
    groups_of,
    held_out_costs,
    standard_error,
)
from treegen.fit.costs import copies
from treegen.fit.fit import fit
from treegen.fit.search import greedy_search
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec

Way = Callable[[Problem], Heuristic]


def with_budget(**changes: float) -> Way:
    """The fit with another budget."""

    def way(known: Problem) -> Heuristic:
        budget: Budget = replace(known.kernel.budget, **changes)  # type: ignore[arg-type]
        return fit(replace(known, kernel=replace(known.kernel, budget=budget)))

    return way


def one_class(known: Problem) -> Heuristic:
    """Rows without classes of models."""
    return fit(replace(known, kernel=replace(known.kernel, classes=(ModelClass("all", None),))))


WAYS: dict[str, Way] = {
    "treegen": fit,
    "without local search": lambda known: fit(known, greedy_search),
    "without classes": one_class,
    "without prices": with_budget(row_price=0.0, cell_price=0.0),
    "half of the rows": lambda known: with_budget(max_rows=max(1, known.kernel.budget.max_rows // 2))(known),
    "half of the configs": lambda k: with_budget(max_configs=max(1, k.kernel.budget.max_configs // 2))(k),
}


def cases(arguments: Sequence[str]) -> Iterator[tuple[str, Problem]]:
    """The tables that the command line names. Raises InputError for a spec or table that cannot be read."""
    for argument in arguments:
        path, _, folder = argument.partition(":")
        spec = read_spec(Path(path))
        problems = [_further(spec, read_table(Path(folder)))] if folder else read_problems(spec)
        for problem in problems:
            yield f"{problem.kernel.name} {Path(folder).name if folder else problem.device.key}", problem


def _further(spec: Spec, table: Table) -> Problem:
    """A table that no spec names, on the device of its GPU's name or else the kernel's first one."""
    names = [k.name for k in spec.kernels.values() if table.kernel in (k.name, *k.translations)]
    kernel = spec.kernels[names[0]]
    devices = [spec.devices[key] for key in kernel.tables]
    here = [device for device in devices if any(table.device_name.startswith(n) for n in device.names)]
    return build_problem(kernel, (here or devices)[0], table)


def judge(problem: Problem, folds: Sequence[Fold], group: Ints) -> Iterator[tuple[str, str]]:
    """By way, its held-out mean and its difference from the whole fit, each with one standard error."""
    ours: Ints | None = None
    for name, way in WAYS.items():
        cost = penalise_untimed(held_out_costs(problem, cross_validate(problem, way, folds)))
        ours = cost if ours is None else ours
        figures = [(cost, ""), (cost - ours, "+")]
        yield (
            name,
            "".join(
                f"{math.expm1(values.mean() / UNIT):{sign}10.2%} +-{standard_error(values, group):.2%}"
                for values, sign in figures
            ),
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line per table and way: time lost held out, and more than the whole fit loses."""
    parser = argparse.ArgumentParser(description="Judge the stages of the fit on many tables.")
    parser.add_argument("cases", nargs="*", default=["treegen.yaml"], metavar="SPEC[:FOLDER]")
    head = "".join(f"{what:>18}" for what in ("held out", "over treegen", "groups", "over treegen"))
    print(f"{'table':40}{'way':24}{head}")
    for name, problem in cases(parser.parse_args(arguments).cases):
        by_scenario = judge(problem, folds_of(problem), copies(problem.features))
        groups = group_folds(problem)
        by_group = dict(judge(problem, groups, groups_of(problem))) if groups else {}
        for way, figures in by_scenario:
            print(f"{name:40}{way:24}{figures}{by_group.get(way, '')}", flush=True)


if __name__ == "__main__":
    main()
