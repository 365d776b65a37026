"""The table that `treegen build` prints."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table as Grid

from treegen.core.problem import Problem
from treegen.core.table import Cells
from treegen.core.tree import depth, size
from treegen.crossval.evaluate import HeldOut
from treegen.update.heuristic import DeviceHeuristic
from treegen.update.keep import TreeOrigin

_COLUMNS = ("device", "scenarios", "configs", "depth", "leaves", "tree", "held-out", "scikit-learn")
_WIDTH = 120


def show_heuristics(heuristics: Sequence[DeviceHeuristic], console: Console | None = None) -> None:
    """Print a table per kernel with a row per device, and below it what the figures mean."""
    console = console or Console(width=_WIDTH, highlight=False, markup=False, emoji=False)
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
        _figure(evaluation.tree) if evaluation else "too few scenarios",
        _figure(evaluation.classifier) if evaluation else "",
    ]


def _notes(heuristics: Sequence[DeviceHeuristic]) -> list[str]:
    notes = []
    kinds = {heuristic.problem.table.cells for heuristic in heuristics}
    if Cells.WINNERS in kinds:
        notes += [
            "won: share of held-out scenarios (5 folds) in which the measured winner was chosen.",
            "N of M configs: M were tried, N won somewhere; the table lacks the others' times.",
        ]
    if Cells.MEASURED in kinds:
        notes.append("x best: geometric mean over held-out scenarios (5 folds) of time over the best time.")
        if any(_has_untimed(h) for h in heuristics):
            notes.append("untimed: share of choices that failed, were not measured or break a constraint.")
    notes.append("scikit-learn: its DecisionTreeClassifier with as many leaves, on the same folds.")
    if any(heuristic.chosen.origin is not TreeOrigin.FRESH for heuristic in heuristics):
        notes.append("kept, edited: the previous tree, in a fresh one's place; held-out is of fresh trees.")
    notes += [_left_out(h.problem) for h in heuristics if h.problem.left_out]
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


def _left_out(problem: Problem) -> str:
    return (
        f"{problem.device.key}: {problem.left_out} of {len(problem.table.scenarios)} scenarios are left out, "
        "as their best config breaks a constraint."
    )


def _configs(problem: Problem) -> str:
    tried = problem.table.provenance.get("origin", {}).get("evaluated_configs")
    return f"{len(problem.configs)} of {tried}" if isinstance(tried, int) else str(len(problem.configs))


def _has_untimed(heuristic: DeviceHeuristic) -> bool:
    evaluation = heuristic.evaluation
    return evaluation is not None and evaluation.tree.untimed + evaluation.classifier.untimed > 0


def _figure(held_out: HeldOut) -> str:
    if held_out.slowdown is None:
        return f"{held_out.agreement:.1%} won"
    text = f"{held_out.slowdown:.3f}x best"
    return f"{text}, {held_out.untimed:.0%} untimed" if held_out.untimed else text
