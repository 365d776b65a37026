"""`treegen eval`: our rows beside other ways of choosing, on scenarios and on models that none has seen."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import sklearn
from rich import box
from rich.console import Console
from rich.table import Table as Grid

from treegen import __version__
from treegen.core.errors import InputError, one_line, shown
from treegen.core.problem import Problem
from treegen.crossval.choices import Choices, Rule, joined, score_decisions
from treegen.crossval.folds import FOLDS, Fold, HeldOut, folds_of, group_folds, groups_of, with_error
from treegen.crossval.parallel import ParallelMap, processes
from treegen.crossval.peers import FOREST, OURS, SINGLE, learn
from treegen.fit.costs import copies
from treegen.fit.fit import fit
from treegen.read.spec import find_spec, read_spec
from treegen.review.build_summary import held_out_words
from treegen.review.printing import counted, json_text, left_out_words, progress
from treegen.review.tables import NoiseFloor, SelectedTable, common_rows, noise_floor, read_tables

_WIDTH = 130
_LABELS = {
    OURS: "treegen",
    SINGLE: "single best config",
    "classifier": "scikit-learn classifier",
    FOREST: "forest (a ceiling)",
}
_LEGEND = """\
- held out, groups held out: geometric mean of time over the best time, +- one standard error
- (3%): share of choices without a time, each scored as 2x slower than the best
- won: of a table of winners, the share of choices that are the winner
- 95%, worst: 95% of the choices are no slower; the slowest choice that has a time
- cells, configs: rows and cells that differ from them, or leaves; configs launched; means over the folds
- unmeasured, failed: choices without a time; failed ones may also break a constraint
- all columns but groups held out are of the folds of scenarios"""


@dataclass(frozen=True)
class EvalSettings:
    """The options of `treegen eval`."""

    spec: Path | None = None  # None: treegen.yaml in this folder
    kernel: str | None = None  # None: all
    device: str | None = None  # None: all
    folds: int = FOLDS  # at least 2; a table with fewer different scenarios has a fold for each
    hold_out_by: tuple[str, ...] = ()  # the features that make a group; empty for the spec's
    against: tuple[Path, ...] = ()  # folders of further tables
    jobs: int | None = None  # None: one process per processor


@dataclass(frozen=True)
class Score:
    """How good one way of choosing is. Counts are means over the folds."""

    way: str
    folds: HeldOut
    groups: HeldOut | None  # None where all scenarios are of one group, and for a further table
    cells: float | None  # what a reader has to read: rows and differing cells, or leaves; None for a forest
    configs: float  # distinct configs that it launches anywhere in the table


@dataclass(frozen=True)
class ScoredTable:
    """All ways of choosing, scored by one table."""

    table: str  # its folder
    scenarios: int  # those with a config that may be launched
    left_out: str  # how many are not, and why; empty if there are none
    configs: int
    groups: int  # of scenarios that are held out together
    group_by: tuple[str, ...]  # the features that make a group
    known: int  # scenarios that all ways were trained on; those are not held out
    scores: tuple[Score, ...]


@dataclass(frozen=True)
class Assessment:
    """Everything about one kernel on one device."""

    kernel: str
    device: str
    noise: NoiseFloor | None
    held_out: ScoredTable
    against: tuple[ScoredTable, ...]  # other tables, which score what was trained on the whole table


@dataclass(frozen=True)
class EvalReport:
    """All assessments, and how they were made."""

    versions: Mapping[str, str]  # of packages that move figures
    folds: int
    assessments: tuple[Assessment, ...]


FoldScores = Mapping[str, tuple[Choices, int | None, int]]
"""By way: its choices, its cells, and how many configs it launches in all scenarios of the table."""


def run(settings: EvalSettings, *, as_json: bool = False) -> None:
    """Evaluate and print Markdown or JSON. Raises InputError before anything is fitted."""
    report = evaluate(settings)
    if as_json:
        print(json_text({"format": 3, **dataclasses.asdict(report)}), end="")
    else:
        show(report)


def evaluate(settings: EvalSettings) -> EvalReport:
    """The assessments of all selected tables."""
    if settings.folds < 2:
        raise InputError(f"--folds {settings.folds}", "must be at least 2")
    spec = read_spec(find_spec(settings.spec))
    tables = read_tables(spec, settings.kernel, settings.device, settings.against)
    for table in tables:
        if not folds_of(table.problem):
            raise InputError(table.problem.table.folder, "has one scenario, which cannot be held out")
        if settings.hold_out_by:
            _check_groups(table.problem, settings.hold_out_by)
    root = spec.path.resolve().parent
    with progress() as tell, processes(settings.jobs or os.cpu_count() or 1, tell) as parallel_map:
        assessments = tuple(_assess(table, settings, parallel_map, root) for table in tables)
    versions = {"treegen": __version__, "scikit-learn": sklearn.__version__}
    return EvalReport(versions, settings.folds, assessments)


def _check_groups(problem: Problem, by: Sequence[str]) -> None:
    """Raise InputError where the named features make no groups of a table."""
    kernel, folder = problem.kernel, problem.table.folder
    option = f"--hold-out-by {','.join(by)}"
    for name in by:
        if name not in kernel.features and name not in kernel.derived:
            raise InputError(
                option, f"{kernel.name} has no feature {shown(name)}; it has {', '.join(kernel.features)}"
            )
        if name not in problem.names:
            raise InputError(option, f"{folder} does not hold {name}")
    if not group_folds(problem, by):
        raise InputError(option, f"all scenarios of {folder} are of one group, so none can be left out")


def _assess(table: SelectedTable, settings: EvalSettings, run: ParallelMap, root: Path) -> Assessment:
    """Score what is fitted to a table and to parts of it."""
    problem, by = table.problem, settings.hold_out_by or table.problem.kernel.hold_out_by
    kernel, device = problem.kernel.name, problem.device.key
    folds = folds_of(problem, settings.folds)
    groups = group_folds(problem, by)
    scores = run(f"{kernel} on {device}", partial(score_fold, problem), [*folds, *groups])
    held_out = _scored(problem, by, scores[: len(folds)], scores[len(folds) :], 0, root)
    against = []
    if table.others:
        rules = learn(problem, fit(problem))
        for other in table.others:
            known = len(common_rows(problem, other)[0])
            against.append(_scored(other, by, [_scores(rules, other, other)], [], known, root))
    return Assessment(kernel, device, noise_floor(problem.table), held_out, tuple(against))


def score_fold(problem: Problem, fold: Fold) -> FoldScores:
    """Train on the fold's training scenarios, and choose in its held-out ones."""
    known, unseen = problem.rows(fold.train), problem.rows(fold.test)
    return _scores(learn(known, fit(known)), unseen, problem)


def _scores(rules: Mapping[str, Rule], unseen: Problem, whole: Problem) -> FoldScores:
    return {
        way: (score_decisions(rule.choose(unseen), unseen), rule.leaves, len(set(rule.choose(whole))))
        for way, rule in rules.items()
    }


def _scored(
    problem: Problem,
    by: Sequence[str],
    folds: Sequence[FoldScores],
    groups: Sequence[FoldScores],
    known: int,
    root: Path,
) -> ScoredTable:
    """One score per way from its choices in all folds of scenarios and of groups."""
    table, number, scores = problem.table, groups_of(problem, by), []
    for way in folds[0]:
        choices, cells, configs = zip(*(fold[way] for fold in folds), strict=True)
        of_groups = [fold[way][0] for fold in groups]
        score = Score(
            way,
            with_error(joined(choices), problem, copies(problem.features)),
            with_error(joined(of_groups), problem, number) if of_groups else None,
            None if None in cells else sum(cells) / len(folds),
            sum(configs) / len(folds),
        )
        scores.append(score)
    return ScoredTable(
        table=Path(os.path.relpath(table.folder, root)).as_posix(),
        scenarios=len(problem.cost),
        left_out=f"{problem.left_out} more left out: {left_out_words(problem)}" if problem.left_out else "",
        configs=len(problem.configs),
        groups=int(number.max()) + 1,
        group_by=tuple(name for name in by if name in problem.names),
        known=known,
        scores=tuple(scores),
    )


def show(report: EvalReport, console: Console | None = None) -> None:
    """Print a report as Markdown."""
    console = console or Console(width=_WIDTH, highlight=False, markup=False, emoji=False, soft_wrap=True)
    for one in report.assessments:
        console.print(f"## {one.kernel} on {one.device}\n")
        by = f" of {', '.join(one.held_out.group_by)}" if one.held_out.group_by else ""
        groups = f"{counted(one.held_out.groups, 'group')}{by}"
        console.print(f"{_size(one.held_out)}, held out in {report.folds} folds; {groups}.\n")
        _show_scores(one.held_out, console, held_out=True)
        if one.noise is not None:
            of = f"{one.noise.scenarios} scenarios; {one.noise.changed:.0%} change"
            what = f"one repeat's fastest config, scored by the other repeats ({of})"
            console.print(f"Noise floor {one.noise.slowdown:.4f}: {what}.\n")
        for other in one.against:
            console.print(f"### Fitted to the whole table, scored by {one_line(other.table)}\n")
            console.print(f"{_size(other)}, {other.known or 'none'} of them trained on.\n")
            _show_scores(other, console, held_out=False)
    console.print(_LEGEND, "", sep="\n")
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    console.print(f"Made by {versions}.")


def _size(table: ScoredTable) -> str:
    left_out = f" ({table.left_out})" if table.left_out else ""
    return f"`{one_line(table.table)}`: {table.scenarios} scenarios{left_out} x {table.configs} configs"


def _show_scores(table: ScoredTable, console: Console, *, held_out: bool) -> None:
    rows = [_row(score, held_out=held_out) for score in table.scores]
    grid = Grid(box=box.MARKDOWN)
    for name in rows[0]:
        grid.add_column(name, justify="left" if name == "chosen by" else "right", no_wrap=True)
    for row in rows:
        grid.add_row(*row.values())
    console.print(grid)
    ours = next(score.folds.quality for score in table.scores if score.way == OURS)
    if ours.worst_scenario is not None:
        console.print(f"treegen's worst: {ours.worst:.2f} in {one_line(ours.worst_scenario)}.\n")


def _row(score: Score, *, held_out: bool) -> dict[str, str]:
    """The cells of a way's row, by column."""
    quality = score.folds.quality
    row = {"chosen by": _LABELS[score.way]}
    row["held out" if held_out else "mean"] = held_out_words(score.folds)
    if held_out:
        row["groups held out"] = held_out_words(score.groups) if score.groups else "one group"
    if quality.slowdown is not None:
        row |= {"95%": _ratio(quality.percentile95), "worst": _ratio(quality.worst)}
    cells = "-" if score.cells is None else f"{score.cells:.0f}"
    row |= {"cells": cells, "configs": f"{score.configs:.0f}"}
    return {**row, "unmeasured": str(quality.unmeasured), "failed": str(quality.failed)}


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
