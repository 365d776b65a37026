"""`treegen eval`: our rows beside other ways of choosing, on scenarios and on models that none has seen."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from rich import box

from treegen.core.errors import InputError, one_line, shown
from treegen.core.problem import UNIT, Problem, common_rows
from treegen.crossval.folds import Fold, folds_of, group_folds, held_out
from treegen.crossval.parallel import processes
from treegen.crossval.peers import FOREST, OURS, SINGLE, Rule, asked, learn
from treegen.crossval.score import Ints, costs_of
from treegen.fit.costs import copies, groups_of, table_noise
from treegen.fit.fit import fit
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import find_spec, read_spec
from treegen.review.build_summary import held_out_words
from treegen.review.printing import counted, grid, left_out_words, plain_console
from treegen.write.modules import read_tables
from tuning_table import __version__

VERSIONS = {"treegen": __version__, "scikit-learn": sklearn.__version__}
"""On which the figures depend."""

_LABELS = {
    OURS: "treegen",
    SINGLE: "one config everywhere",
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


ScoredTable = dict[str, Any]
"""All ways of choosing for one kernel and device, scored by one table: docs/eval.md lists the keys."""

Trained = Mapping[str, tuple[Ints, int | None, int]]
"""By way: its choices' costs, its cells, and how many configs it launches in all scenarios of the table."""


def evaluate(
    spec_path: Path | None,
    kernel: str | None,
    device: str | None,
    folds: int,
    hold_out_by: Sequence[str],
    against: Sequence[Path],
    jobs: int | None,
) -> list[ScoredTable]:
    """The scores by all selected tables, each device's own before the further ones.

    hold_out_by: the features that make a group; empty for the spec's. against: folders of further tables.
    jobs: processes; None for one per processor. Raises InputError before anything is fitted.
    """
    if folds < 2:
        raise InputError(f"--folds {folds}", "must be at least 2")
    spec = read_spec(find_spec(spec_path))
    problems = read_tables(spec, kernel, device)
    others = other_tables(problems, against)
    for problem in problems:
        if not folds_of(problem):
            raise InputError(problem.table.folder, "has one scenario, which cannot be held out")
        if hold_out_by:
            _check_groups(problem, hold_out_by)
    root, scored = spec.path.resolve().parent, []
    with processes(jobs or os.cpu_count() or 1) as parallel_map:
        for problem, further in zip(problems, others, strict=True):
            by = tuple(hold_out_by) or problem.kernel.hold_out_by
            parts, groups = folds_of(problem, folds), group_folds(problem, by)
            trained = parallel_map(str(problem), partial(train, problem), [*parts, *groups])
            scored.append(_scored(problem, by, parts, groups, trained, root))
            rules = learn(problem, fit(problem)) if further else {}
            for other in further:
                every = Fold(np.arange(0), np.arange(len(other.cost)))
                one = _scored(other, by, [every], [], [_choices(rules, other, other)], root)
                known = len(common_rows(problem, other)[0])
                scored.append({**one, "held_out": False, "known": known})
    return scored


def other_tables(problems: Sequence[Problem], against: Sequence[Path]) -> list[list[Problem]]:
    """For each problem those further tables that may score its rows, with the same features to split on.

    They are of its kernel and GPU, or any if there is a single problem. Raises InputError.
    """
    found: list[list[Problem]] = [[] for _ in problems]
    for table in map(read_table, dict.fromkeys(against)):
        kernel, gpu, known = table.kernel, table.device_name, False
        for problem, of in zip(problems, found, strict=True):
            own = problem.table
            if len(problems) == 1 or (own.kernel, own.device_name) == (kernel, gpu):
                known, other = True, build_problem(problem.kernel, problem.device, table)
                if lacks := [name for name in asked(problem) if name not in other.names]:
                    what = f"does not hold {lacks[0]}, about which the rows of {own.folder} may ask"
                    raise InputError(table.folder, what)
                of.append(replace(other, split_on=problem.split_on))
        if not known:
            what = f"measured {kernel} on {gpu}, as no evaluated table did"
            raise InputError(table.folder, f"{what}; to use it all the same, name one --kernel and --device")
    return found


def _check_groups(problem: Problem, by: Sequence[str]) -> None:
    """Raise InputError where the named features make no groups of a table."""
    folder, option = problem.table.folder, f"--hold-out-by {','.join(by)}"
    if absent := [name for name in by if name not in problem.names]:
        what = f"{shown(absent[0])}; it holds {', '.join(problem.names)}"
        raise InputError(option, f"{folder} does not hold {what}")
    if not group_folds(problem, by):
        raise InputError(option, f"all scenarios of {folder} are of one group, so none can be left out")


def train(problem: Problem, fold: Fold) -> Trained:
    """Train on the fold's training scenarios, and choose in its held-out ones."""
    known = problem.rows(fold.train)
    return _choices(learn(known, fit(known)), problem.rows(fold.test), problem)


def _choices(rules: Mapping[str, Rule], unseen: Problem, whole: Problem) -> Trained:
    return {
        way: (costs_of(rule.columns(unseen), unseen), rule.leaves, len(np.unique(rule.columns(whole))))
        for way, rule in rules.items()
    }


def _scored(
    problem: Problem,
    by: Sequence[str],
    folds: Sequence[Fold],
    groups: Sequence[Fold],
    trained: Sequence[Trained],
    root: Path,
) -> ScoredTable:
    """One score per way from its choices in all folds of scenarios, then of groups."""
    number, scores, count = groups_of(problem, by), [], len(folds)
    for way in trained[0]:
        costs, cells, configs = zip(*(found[way] for found in trained), strict=True)
        score = {
            "way": way,
            "folds": held_out(problem, folds, costs[:count], copies(problem.features)),
            "groups": held_out(problem, groups, costs[count:], number) if groups else None,
            "cells": None if None in cells else sum(cells[:count]) / count,
            "configs": sum(configs[:count]) / count,
        }
        scores.append(score)
    return {
        "kernel": problem.kernel.name,
        "device": problem.device.key,
        "table": Path(os.path.relpath(problem.table.folder, root)).as_posix(),
        "held_out": True,
        "scenarios": len(problem.cost),
        "left_out": left_out_words(problem),
        "configs": len(problem.configs),
        "noise": table_noise(problem.table) / UNIT,
        "groups": int(number.max()) + 1,
        "group_by": [name for name in by if name in problem.names],
        "known": 0,
        "scores": scores,
    }


def show(tables: Sequence[ScoredTable], folds: int) -> None:
    """Print scores as Markdown."""
    console = plain_console(width=130, soft_wrap=True)
    for table in tables:
        left_out = f" ({table['left_out']})" if table["left_out"] else ""
        size = f"{table['scenarios']} scenarios{left_out} x {table['configs']} configs"
        size = f"`{one_line(table['table'])}`: {size}"
        if table["held_out"]:
            console.print(f"## {table['kernel']} on {table['device']}\n")
            by = f" of {', '.join(table['group_by'])}" if table["group_by"] else ""
            console.print(f"{size}, held out in {folds} folds; {counted(table['groups'], 'group')}{by}.\n")
        else:
            console.print(f"### Fitted to the whole table, scored by {one_line(table['table'])}\n")
            console.print(f"{size}, {table['known'] or 'none'} of them trained on.\n")
        rows = [_row(score, held_out=table["held_out"]) for score in table["scores"]]
        console.print(grid(rows, ["chosen by"], box=box.MARKDOWN))
        ours = next(score["folds"].quality for score in table["scores"] if score["way"] == OURS)
        notes = []
        if ours.worst_scenario is not None:
            notes.append(f"treegen's worst: {ours.worst:.2f} in {one_line(ours.worst_scenario)}.")
        if table["noise"]:
            notes.append(f"Two configs' times differ by {table['noise']:.1%} in one scenario by noise alone.")
        console.print(*notes, "", sep="\n")
    made_by = ", ".join(f"{name} {version}" for name, version in VERSIONS.items())
    console.print(_LEGEND, "", f"Made by {made_by}.", sep="\n")


def _row(score: Mapping[str, Any], *, held_out: bool) -> dict[str, str]:
    """The cells of a way's row, by column."""
    quality = score["folds"].quality
    row = {"chosen by": _LABELS[score["way"]]}
    row["held out" if held_out else "mean"] = held_out_words(score["folds"])
    if held_out:
        row["groups held out"] = held_out_words(score["groups"]) if score["groups"] else "one group"
    if quality.slowdown is not None:
        ratios = {"95%": quality.percentile95, "worst": quality.worst}
        row |= {name: "-" if value is None else f"{value:.2f}" for name, value in ratios.items()}
    cells = "-" if score["cells"] is None else f"{score['cells']:.0f}"
    row |= {"cells": cells, "configs": f"{score['configs']:.0f}"}
    return {**row, "unmeasured": str(quality.unmeasured), "failed": str(quality.failed)}
