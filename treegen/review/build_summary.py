"""The table that `treegen build` prints."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import geometric_mean
from typing import Any

import numpy as np
from rich import box

from treegen.core.problem import Problem
from treegen.core.table import Cells, needless
from treegen.crossval.folds import DeviceHeuristic, HeldOut
from treegen.crossval.score import Quality
from treegen.review.printing import counted, grid, left_out_words, plain_console

_LEFT = ("device", "origin", "fitted", "held-out", "groups held-out", "scikit-learn")
_GO_ON = "the same command with a larger budget goes on"
MOST_KERNELS = 8  # that are all shown
WEAK, MOST_UNTIMED = 1.1, 0.05  # of many kernels, one with a greater slowdown or share is shown


def show_heuristics(heuristics: Sequence[DeviceHeuristic]) -> None:
    """Print a table per kernel with a row per device, and below it what the figures mean.

    Of more than MOST_KERNELS, print those alone that deserve a look, and a line about all.
    """
    console = plain_console(width=1000)  # no cell is cut
    kernels = list(dict.fromkeys(heuristic.problem.kernel.name for heuristic in heuristics))
    many = len(kernels) > MOST_KERNELS
    shown = [heuristic for heuristic in heuristics if not many or _is_weak(heuristic)]
    for kernel in kernels:
        if rows := [_row(found) for found in shown if found.problem.kernel.name == kernel]:
            table = grid(rows, _LEFT, box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
            console.print(kernel, "", table, "", sep="\n")
    lines = [*(_legend(shown) if shown else []), *_notes(heuristics, many=many)]
    console.print(*lines, *([_of_all(heuristics)] if many else []), sep="\n", soft_wrap=True)


def _qualities(found: DeviceHeuristic) -> list[Quality]:
    """Fitted, held-out, and held-out groups, as far as there are any."""
    evaluation = found.evaluation
    held_out = [evaluation.folds, evaluation.groups] if evaluation else []
    return [found.score.quality, *(each.quality for each in held_out if each)]


def _is_weak(found: DeviceHeuristic) -> bool:
    return any((each.slowdown or 1.0) > WEAK or each.untimed > MOST_UNTIMED for each in _qualities(found))


def _of_all(heuristics: Sequence[DeviceHeuristic]) -> str:
    """One line about all kernels."""
    modules = counted(len(heuristics), "module")
    rows = sum(len(regime.rows) for found in heuristics for regime in found.heuristic.regimes)
    scenarios = sum(len(found.problem.table.scenarios) for found in heuristics)
    words = f"{modules}, {counted(scenarios, 'scenario')}, {counted(rows, 'row')}"
    timed = [slowdown for found in heuristics if (slowdown := found.score.quality.slowdown)]
    fitted = f"; fitted {geometric_mean(timed):.3f} on average, at worst {max(timed):.3f}" if timed else ""
    weak = sum(map(_is_weak, heuristics))
    above = f"{weak} above {WEAK}, or with untimed choices, are shown" if weak else f"none above {WEAK}"
    return f"{words}{fitted}; {above}; `treegen report` shows all"


def _row(found: DeviceHeuristic) -> dict[str, str]:
    problem, evaluation = found.problem, found.evaluation
    groups = evaluation.groups if evaluation else None
    files = problem.table.provenance.get("origin", {}).get("files")  # of an import
    return {
        "device": problem.device.key,
        "scenarios": f"{len(problem.table.scenarios)}{f' of {files} files' if files else ''}",
        "rows": str(sum(len(regime.rows) for regime in found.heuristic.regimes)),
        "configs": str(len(found.heuristic.configs)),
        "origin": found.origin,
        "fitted": _figure(found.score.quality),
        "held-out": held_out_words(evaluation.folds) if evaluation else "few scenarios",
        "groups held-out": held_out_words(groups) if groups else "one group" if evaluation else "",
        "scikit-learn": _figure(evaluation.classifier) if evaluation else "",
    }


def _legend(heuristics: Sequence[DeviceHeuristic]) -> list[str]:
    """What the tables' figures mean."""
    notes = []
    kinds = {heuristic.problem.table.cells for heuristic in heuristics}
    if Cells.WINNERS in kinds:
        notes.append("won: share of scenarios in which the measured winner is chosen.")
    if Cells.MEASURED in kinds:
        mean = "geometric mean over scenarios of time over the best time"
        notes.append(f"Figures: {mean}; +- one standard error.")
        figures = [figure for heuristic in heuristics for figure in _qualities(heuristic)]
        figures += [h.evaluation.classifier for h in heuristics if h.evaluation]
        if any(figure.slowdown and figure.untimed for figure in figures):
            notes.append("(3%): share of choices without a time, each counted as 2x slower than the best.")
    return [
        *notes,
        "fitted: the module, by the table that it is built from.",
        "held-out: fresh fits, each by the fifth of the scenarios that it has not seen.",
        "groups held-out: the same with whole groups left out (hold_out_by): what new models get.",
        "scikit-learn: DecisionTreeClassifier with as many leaves as our rows have cells, held-out.",
    ]


def _notes(heuristics: Sequence[DeviceHeuristic], *, many: bool) -> list[str]:
    problems = [heuristic.problem for heuristic in heuristics]
    left_out = [f"{problem}: {words}" for problem in problems if (words := left_out_words(problem))]
    ended = _unfinished_of_many(problems) if many else unfinished(problems)
    ignored = [f"{problem}: {line}" for problem in problems for line in _ignored(problem)]
    notes = [*left_out, *ended, *untimed_fallbacks(problems), *ignored]
    return [f"{note}." for note in notes] + not_kept(heuristics)


def not_kept(heuristics: Sequence[DeviceHeuristic]) -> list[str]:
    """A line for each previous heuristic that a fresh one replaces."""
    fresh = (heuristic for heuristic in heuristics if heuristic.why_fresh is not None)
    return [f"{one.problem}: the previous rows are not kept: {one.why_fresh}." for one in fresh]


def untimed_fallbacks(problems: Sequence[Problem]) -> list[str]:
    """A line for each kernel whose fallback no table holds: nobody knows how slow it is."""
    kernels = {problem.kernel.name: problem.kernel for problem in problems}
    timed = [(p, zip(p.configs, np.isfinite(p.times()).T, strict=True)) for p in problems]
    measured = {p.kernel.name for p, of in timed if any(c == p.kernel.fallback and t.any() for c, t in of)}
    unknown = {n: kernel.constant_name(kernel.fallback) for n, kernel in kernels.items() if n not in measured}
    return [f"{n}: no table holds a time of the fallback {config}" for n, config in unknown.items()]


def unfinished(problems: Sequence[Problem]) -> list[str]:
    """A line for each table whose tuning run ended before its search did."""
    lines = []
    for problem, run in _ended_early(problems):
        what = f"the tuning run ended early: {_measured([run])}"
        what += f", and {len(problem.cost):,} scenarios compare configs"
        few, of_all = int(np.median((~np.isnan(problem.times())).sum(axis=1))), len(problem.configs)
        if few < of_all:
            what += f", half of them at most {few} of {of_all}; figures are over the best of those"
        lines.append(f"{problem}: {what}; {_GO_ON}")
    return lines


def _unfinished_of_many(problems: Sequence[Problem]) -> list[str]:
    """One line about all such tables."""
    runs = [run for _, run in _ended_early(problems)]
    if not runs:
        return []
    ended = f"{counted(len(runs), 'tuning run')} ended early: {_measured(runs)}"
    return [f"{ended}; figures are over the best of those; {_GO_ON}"]


def _ended_early(problems: Sequence[Problem]) -> list[tuple[Problem, dict[str, Any]]]:
    """The tables with run.yaml's summary of such runs."""
    runs = [(problem, problem.table.provenance.get("summary", {})) for problem in problems]
    return [(problem, run) for problem, run in runs if run.get("finished") is False]


def _measured(runs: Sequence[dict[str, Any]]) -> str:
    measured, possible = (sum(run.get(f"cells_{key}", 0) for run in runs) for key in ("measured", "possible"))
    return f"{measured:,} of {possible:,} cells are measured"


def _ignored(problem: Problem) -> list[str]:
    """The columns that are no feature, unless a tree would not need them.

    None for a table whose columns a translation picks.
    """
    if problem.table.kernel in problem.kernel.translations:
        return []
    table = problem.table
    columns = {}
    for name, column in zip(table.feature_names, table.features.T.tolist(), strict=True):
        words = table.words.get(name, {})
        columns[name] = {row: words.get(value, value) for row, value in enumerate(column)}
    of_spec = [name for name in columns if name in problem.names]
    ignored = [name for name in columns if name not in of_spec]
    told = needless({name: columns[name] for name in (*of_spec, *ignored)})
    what = "of scenarios.csv is no feature of the spec, and is ignored; add it to features"
    return [f"column {name} {what}" for name in ignored if name not in told]


def held_out_words(found: HeldOut) -> str:
    """`1.040 +-0.002`, with the share of untimed choices behind it; `92.9% won +-2.7%` for winners."""
    if found.quality.slowdown is None:
        return f"{_figure(found.quality)} +-{found.error:.1%}"
    return _figure(found.quality, f" +-{found.error:.3f}")


def _figure(found: Quality, error: str = "") -> str:
    if found.slowdown is None:
        return f"{found.agreement:.1%} won"
    share = f"{found.untimed:.0%}" if found.untimed >= 0.005 else "<1%"
    return f"{found.slowdown:.3f}{error}" + (f" ({share})" if found.untimed else "")
