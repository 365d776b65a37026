"""The table that `treegen build` prints."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table as Grid

from treegen.core.problem import Problem
from treegen.core.table import Cells
from treegen.core.tree import Tree, depth, same_without_gaps, size
from treegen.crossval.choices import Quality, decisions_of, quality, score_decisions
from treegen.review.printing import left_out_words
from treegen.update.keep import DeviceHeuristic, TreeOrigin

_COLUMNS = ("device", "scenarios", "configs", "depth", "leaves", "tree", "fitted", "held-out", "scikit-learn")
_WIDTH = 128


def show_heuristics(heuristics: Sequence[DeviceHeuristic]) -> None:
    """Print a table per kernel with a row per device, and below it what the figures mean."""
    console = Console(width=_WIDTH, highlight=False, markup=False, emoji=False)
    for kernel in dict.fromkeys(heuristic.problem.kernel.name for heuristic in heuristics):
        grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for column in _COLUMNS:
            grid.add_column(column, justify="right" if column in _COLUMNS[1:5] else "left", no_wrap=True)
        for heuristic in heuristics:
            if heuristic.problem.kernel.name == kernel:
                grid.add_row(*_row(heuristic))
        console.print(kernel, "", grid, "", sep="\n")
    console.print(*_notes(heuristics), sep="\n", soft_wrap=True)


def _row(heuristic: DeviceHeuristic) -> list[str]:
    problem, tree, evaluation = heuristic.problem, heuristic.tree, heuristic.evaluation
    return [
        problem.device.key,
        str(len(problem.table.scenarios)),
        _configs(problem),
        str(depth(tree)),
        str(size(tree)),
        heuristic.chosen.origin,
        _figure(_fitted(problem, heuristic.chosen.tree)),
        _figure(evaluation.tree) if evaluation else "too few scenarios",
        _figure(evaluation.classifier) if evaluation else "",
    ]


def _notes(heuristics: Sequence[DeviceHeuristic]) -> list[str]:
    notes = []
    kinds = {heuristic.problem.table.cells for heuristic in heuristics}
    if Cells.WINNERS in kinds:
        notes += [
            "won: share of scenarios in which the measured winner is chosen.",
            "N of M configs: M were tried, N won somewhere; the table lacks the others' times.",
        ]
    if Cells.MEASURED in kinds:
        notes.append("x: geometric mean over scenarios of time over the best time.")
        figures = [_fitted(h.problem, h.chosen.tree) for h in heuristics]
        for evaluation in filter(None, (h.evaluation for h in heuristics)):
            figures += [evaluation.tree, evaluation.classifier]
        if any(figure.untimed for figure in figures):
            what = "share of choices that failed, were not measured or break a constraint"
            notes.append(f"untimed: {what}; each counts as 2x slower.")
    notes += [
        "fitted: the module, by the table that it is built from.",
        "held-out: fresh trees, each by the fifth of the scenarios that it was not fitted to.",
        "scikit-learn: its DecisionTreeClassifier with as many leaves, on the same folds.",
    ]
    for problem in (h.problem for h in heuristics if h.problem.left_out):
        left_out = f"{problem.left_out} of {len(problem.table.scenarios)} scenarios are left out"
        notes.append(f"{problem.device.key}: {left_out}: {left_out_words(problem)}.")
    notes += [f"{_title(h)}: {line}." for h in heuristics for line in (*_ignored(h.problem), *_forgone(h))]
    notes += [f"{_title(h)}: {h.chosen}." for h in heuristics if h.chosen.origin is TreeOrigin.EDITED]
    return notes + not_kept(heuristics)


def not_kept(heuristics: Sequence[DeviceHeuristic]) -> list[str]:
    """A line for each previous tree that a fresh one replaces."""
    return [
        f"{_title(heuristic)}: the previous tree is not kept: {heuristic.chosen.why_fresh}."
        for heuristic in heuristics
        if heuristic.chosen.why_fresh is not None
    ]


def _title(heuristic: DeviceHeuristic) -> str:
    return f"{heuristic.problem.kernel.name} on {heuristic.problem.device.key}"


def _ignored(problem: Problem) -> list[str]:
    """The columns that are no feature; none for a table whose columns a translation picks."""
    if problem.table.kernel in problem.kernel.translations:
        return []
    what = "of scenarios.csv is no feature of the spec, and is ignored; add it to features"
    return [f"column {name} {what}" for name in problem.table.feature_names if name not in problem.names]


def _configs(problem: Problem) -> str:
    tried = problem.table.provenance.get("origin", {}).get("evaluated_configs")
    return f"{len(problem.configs)} of {tried}" if isinstance(tried, int) else str(len(problem.configs))


def _fitted(problem: Problem, tree: Tree) -> Quality:
    return quality(score_decisions(decisions_of(tree, problem), problem), problem.table.cells)


def _forgone(heuristic: DeviceHeuristic) -> list[str]:
    """What a kept or edited tree costs beside the fresh one, by the table."""
    chosen, problem = heuristic.chosen, heuristic.problem
    if chosen.forgone is None or same_without_gaps(chosen.tree, chosen.fresh) or chosen.forgone[0] <= 0:
        return []
    fresh = _figure(_fitted(problem, chosen.fresh))
    mean, error = chosen.forgone
    forgone = f"{math.expm1(mean):.2%} +- {2 * error:.2%} of the time"
    if problem.table.cells is Cells.WINNERS:
        forgone = f"{mean:.1%} +- {2 * error:.1%}"
    figures = f"a fresh tree is at {fresh}; the tree that is {chosen.origin} forgoes {forgone}"
    return [f"{figures}. `treegen build --fresh` takes the fresh tree"]


def _figure(found: Quality) -> str:
    if found.slowdown is None:
        return f"{found.agreement:.1%} won"
    text = f"{found.slowdown:.3f}x"
    return f"{text}, {found.untimed:.0%} untimed" if found.untimed else text
