"""treegen eval: evaluate the selected tables, print the figures, write them."""

from __future__ import annotations

import dataclasses
import os
import shlex

import sklearn

from treegen import __version__
from treegen.build import fit_tree
from treegen.core.errors import InputError, one_line
from treegen.core.output import ignore_closed_pipe
from treegen.crossval import helion
from treegen.crossval.choices import Fit
from treegen.crossval.parallel import processes
from treegen.review.eval.assess import EvalReport, assess
from treegen.review.eval.page import TITLE, page
from treegen.review.eval.terminal import show_report
from treegen.review.json_text import json_text
from treegen.review.progress import progress
from treegen.review.selected_tables import EvalSettings, read_tables, without_small
from treegen.write.files import check_replaceable, check_writable, write_files

PAGE, FIGURES = "eval.md", "eval.json"
FORMAT = 1
_MARKS = {PAGE: TITLE.encode(), FIGURES: b'"command": "treegen eval '}


def run(settings: EvalSettings, fit: Fit = fit_tree) -> None:
    """Evaluate and print; write where the settings say so. Raises InputError before anything is fitted."""
    _check(settings)
    report = evaluate(settings, fit)
    if settings.out is None:
        show_report(report)
        return
    with ignore_closed_pipe():  # where printing fails otherwise, nothing is written
        show_report(report)
    changed = write_files(settings.out, {PAGE: page(report), FIGURES: figures_text(report)})
    with ignore_closed_pipe():
        print(f"{settings.out}: {PAGE} and {FIGURES}, {len(changed)} changed")


def evaluate(settings: EvalSettings, fit: Fit) -> EvalReport:
    """The assessments of all selected tables."""
    tables, left_out = without_small(read_tables(settings), settings)
    with progress() as tell, processes(settings.jobs or os.cpu_count() or 1, tell) as spread:
        assessments = tuple(assess(table, settings, fit, spread) for table in tables)
    versions = {"treegen": __version__, "scikit-learn": sklearn.__version__}
    if (version := helion.version()) is not None:
        versions["helion"] = version
    command = command_line(settings)
    return EvalReport(command, versions, settings.folds, settings.repeats, assessments, left_out)


def figures_text(report: EvalReport) -> str:
    """The report as JSON; the keys are the names of its dataclasses' fields."""
    return json_text({"format": FORMAT, **dataclasses.asdict(report)})


def command_line(settings: EvalSettings) -> str:
    """The command that evaluates the same. It leaves out `--jobs`, on which no figure depends."""
    options = (("--spec", settings.spec), ("--kernel", settings.kernel), ("--device", settings.device))
    words = ["treegen", "eval"]
    words += [word for name, value in options if value is not None for word in (name, str(value))]
    words += ["--folds", str(settings.folds), "--repeats", str(settings.repeats)]
    words += [word for folder in settings.against for word in ("--against", str(folder))]
    words += ["--curves"] if settings.curves else []
    words += ["--out", str(settings.out)] if settings.out is not None else []
    return one_line(shlex.join(words))


def _check(settings: EvalSettings) -> None:
    limits = (
        ("--folds", settings.folds, 2),
        ("--repeats", settings.repeats, 1),
        ("--jobs", settings.jobs, 1),
    )
    for option, value, least in limits:
        if value is not None and value < least:
            raise InputError(f"{option} {value}", f"must be at least {least}")
    if settings.out is not None:
        check_writable(settings.out, (PAGE, FIGURES))
        for name, mark in _MARKS.items():
            check_replaceable(settings.out / name, "treegen eval", mark)
