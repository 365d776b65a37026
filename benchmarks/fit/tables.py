"""Judge ways of fitting on many tables: held-out slowdowns of each, beside the fit of treegen.

    python -m benchmarks.fit.tables treegen.yaml examples/convolve/treegen.yaml
    python -m benchmarks.fit.tables treegen.yaml:tuning_data/unified_attention/untuned_nvidia_h200 --stages

A case is a spec, for all of its tables, or `SPEC:FOLDER`, for one more table of a kernel of that spec. Every
way gets the same folds. A choice without a time scores as 2x slower than the best. Needs no GPU and no torch.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt

from treegen.build import fit_tree, read_problems
from treegen.core.problem import UNIT, Problem
from treegen.core.spec import Budget, Spec
from treegen.core.table import Cells, Table
from treegen.core.tree import size
from treegen.crossval.choices import (
    Choices,
    Rule,
    decisions_of,
    penalise_untimed,
    quality,
    score_decisions,
    tree_rule,
)
from treegen.crossval.folds import split_copies
from treegen.crossval.peers import SINGLE, peers
from treegen.fit.costs import copies
from treegen.fit.local_search import grow
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec
from treegen.suggest import suggest, with_suggestions, without_derived

_MOST_SUGGESTIONS = 8
OURS = "treegen"
RAW = "treegen, raw features"
RAW_SUGGESTED = "treegen, raw and suggested"
SUGGESTED = "treegen, suggested features"

# What stands in for each stage that `--stages` leaves out.
WITHOUT: dict[str, dict[str, Callable[..., Any]]] = {
    "interpolation": {"treegen.fit.search.interpolate": lambda features, loss: (features[:0], loss[:0])},
    "local search": {"treegen.fit.search.local_search": grow},
    "search on measured scenarios": {"treegen.fit.search._refined": lambda measured, tree: tree},
    "isolation of failures": {"treegen.fit.search.isolate_failures": lambda training, tree: tree},
    "shortlist": {"treegen.fit.search.shortlist": lambda loss, unit: np.arange(loss.shape[1])},
    "config pruning": {"treegen.fit.search.prune_configs": lambda training, tree, price: tree},
    "split pruning": {"treegen.build.prune_splits": lambda costs, tree: tree},
}


@dataclass(frozen=True)
class Case:
    """A table, seen through a spec."""

    name: str
    problem: Problem


@dataclass(frozen=True)
class Held:
    """One way's choices in every held-out scenario of a case, fold by fold."""

    cost: npt.NDArray[np.int64]  # [choices] as in Problem
    scenarios: tuple[str, ...]  # [choices]
    leaves: float | None  # mean over the folds


Way = Callable[[Problem, Budget], Rule]
"""Learns a rule from training scenarios. Peers get the leaves of treegen's tree of the same fold."""


@contextmanager
def without(stage: str | None) -> Iterator[None]:
    """Leave a stage out of every fit within the block; None leaves all in."""
    with ExitStack() as stack:
        for name, replacement in WITHOUT[stage].items() if stage else ():
            stack.enter_context(patch(name, replacement))
        yield


def cases(arguments: Sequence[str]) -> list[Case]:
    """The cases that the command line names. Raises InputError for a spec or table that cannot be read."""
    found: list[Case] = []
    for argument in arguments:
        path, _, folder = argument.partition(":")
        spec = read_spec(Path(path))
        problems = [_further(spec, read_table(Path(folder)))] if folder else read_problems(spec)
        for problem in problems:
            place = Path(folder).name if folder else problem.device.key
            name = f"{problem.kernel.name} {place}"
            found.append(Case(name, problem))
    return found


def _further(spec: Spec, table: Table) -> Problem:
    """A table that no spec names, on the device of its GPU's name or else the kernel's first one."""
    names = [k.name for k in spec.kernels.values() if table.kernel in (k.name, *k.translations)]
    kernel = spec.kernels[names[0]]
    devices = [spec.devices[key] for key in kernel.tables]
    here = [device for device in devices if any(table.device_name.startswith(n) for n in device.names)]
    return build_problem(kernel, (here or devices)[0], table)


def ways(*, stages: bool) -> dict[str, Way]:
    """Every way by its name. treegen's is the first."""

    def fitted(known: Problem, budget: Budget, stage: str | None = None) -> Rule:
        with without(stage):
            return tree_rule(fit_tree(known))

    if stages:
        return {OURS: fitted, **{f"without {s}": partial(fitted, stage=s) for s in WITHOUT}}
    suggested = {RAW_SUGGESTED: _raw_suggested, SUGGESTED: _suggested}
    return {OURS: fitted, RAW: _raw, **suggested, **peers()}


def _raw(known: Problem, budget: Budget) -> Rule:
    return tree_rule(fit_tree(without_derived(known)))


def _raw_suggested(known: Problem, budget: Budget) -> Rule:
    rule = _suggested(without_derived(known), budget)
    return Rule(lambda unseen: rule.choose(without_derived(unseen)), rule.leaves)


def _suggested(known: Problem, budget: Budget) -> Rule:
    """Features are searched in the training scenarios alone."""
    found = suggest([known], _MOST_SUGGESTIONS).found
    tree = fit_tree(with_suggestions(known, found))
    return Rule(lambda unseen: decisions_of(tree, with_suggestions(unseen, found)), size(tree))


def held_out(case: Case, way: Way, leaves: Sequence[int | None], folds: int, repeats: int) -> Held:
    """Cross-validate one way. leaves: the most for each fold; None for the kernel's budget."""
    problem, parts, sizes = case.problem, [], []
    for number, fold in enumerate(split_copies(copies(problem.features), folds, repeats)):
        known, unseen = problem.rows(fold.train), problem.rows(fold.test)
        limit = problem.kernel.budget
        budget = replace(limit, max_leaves=leaves[number] or limit.max_leaves)
        rule = way(known, budget)
        parts.append(score_decisions(rule.choose(unseen), unseen))
        sizes.append(rule.leaves)
    known_sizes = [count for count in sizes if count is not None]
    return Held(
        np.concatenate([part.cost for part in parts]),
        tuple(scenario for part in parts for scenario in part.scenarios),
        sum(known_sizes) / len(known_sizes) if known_sizes else None,
    )


def line(held: Held, ours: Held, cells: Cells) -> str:
    """The figures of a way, and how much slower it chooses than treegen, with one standard error."""
    found = quality(Choices(held.cost, held.scenarios), cells)
    leaves = "" if held.leaves is None else f"{held.leaves:.1f}"
    if found.slowdown is None or found.percentile95 is None:
        return f"{found.agreement:9.1%} won{leaves:>27}"
    steps = (penalise_untimed(held.cost) - penalise_untimed(ours.cost)) / UNIT
    by_scenario: dict[str, list[float]] = {}
    for scenario, step in zip(held.scenarios, steps.tolist(), strict=True):
        by_scenario.setdefault(scenario, []).append(step)
    means = np.array([math.fsum(group) / len(group) for group in by_scenario.values()])
    error = means.std(ddof=1) / math.sqrt(len(means)) if len(means) > 1 else 0.0
    worst = found.worst or math.inf
    beside = "" if held is ours else f"{math.expm1(means.mean()):+9.2%} +- {error:.2%}"
    return (
        f"{found.slowdown:9.4f}{found.percentile95:8.3f}{worst:8.2f}{found.failed:7}{leaves:>8}{beside:>20}"
    )


def judge(case: Case, chosen: Mapping[str, Way], folds: int, repeats: int) -> Iterator[str]:
    """A line per way."""
    ours: Held | None = None
    for name, way in chosen.items():
        peer = ours is not None and name in peers() and name != SINGLE
        leaves = [round(ours.leaves) if peer and ours and ours.leaves else None] * folds * repeats
        held = held_out(case, way, leaves, folds, repeats)
        ours = ours or held
        yield f"{case.name:40}{name:32}{line(held, ours, case.problem.table.cells)}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line per case and way."""
    parser = argparse.ArgumentParser(description="Judge ways of fitting on many tables.")
    parser.add_argument("cases", nargs="*", default=["treegen.yaml"], metavar="SPEC[:FOLDER]")
    parser.add_argument("--stages", action="store_true", help="judge the fit without one stage at a time")
    parser.add_argument("--ways", nargs="+", metavar="TEXT", help="only ways whose name contains a TEXT")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2, help="shuffles (default: 2)")
    options = parser.parse_args(arguments)
    chosen = ways(stages=options.stages)
    if options.ways:
        chosen = {n: w for n, w in chosen.items() if n == OURS or any(text in n for text in options.ways)}
    head = f"{'geomean':>9}{'95%':>8}{'worst':>8}{'failed':>7}{'leaves':>8}{'over treegen':>20}"
    print(f"{'table':40}{'way':32}{head}")
    for case in cases(options.cases):
        for text in judge(case, chosen, options.folds, options.repeats):
            print(text, flush=True)


if __name__ == "__main__":
    main()
