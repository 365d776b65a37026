"""treegen eval: evaluate what was asked for, print it, write it."""

from __future__ import annotations

import os
import shlex
import sys

import sklearn

from treegen import __version__
from treegen.build import fit_tree
from treegen.core.errors import InputError, one_line
from treegen.crossval import helion
from treegen.crossval.choices import Fit
from treegen.crossval.parallel import processes
from treegen.review.eval.assess import assess
from treegen.review.eval.figures import figures_text
from treegen.review.eval.page import page
from treegen.review.eval.progress import progress
from treegen.review.eval.request import Request, read_subjects
from treegen.review.eval.results import Report
from treegen.review.eval.show import show_report
from treegen.write.files import check_writable, write_files

PAGE, FIGURES = "eval.md", "eval.json"


def run(request: Request, fit: Fit = fit_tree) -> None:
    """Evaluate, print, and write where the request says so. Raises InputError before anything is fitted."""
    _check(request)
    report = evaluate(request, fit)
    show_report(report)
    sys.stdout.flush()  # nothing is written when nothing can be said
    if request.out is not None:
        changed = write_files(request.out, {PAGE: page(report), FIGURES: figures_text(report)})
        print(f"{request.out}: {PAGE} and {FIGURES}, {len(changed)} changed")


def evaluate(request: Request, fit: Fit) -> Report:
    """All that is asked for, as data."""
    subjects = read_subjects(request)
    with progress() as tell, processes(request.jobs or os.cpu_count() or 1, tell) as spread:
        assessments = tuple(assess(subject, request.plan, fit, spread) for subject in subjects)
    versions = {"treegen": __version__, "scikit-learn": sklearn.__version__}
    if (found := helion.version()) is not None:
        versions["helion"] = found
    return Report(command(request), versions, request.plan.folds, request.plan.repeats, assessments)


def command(request: Request) -> str:
    """The command line that asks for the same. It leaves out `--jobs`, on which nothing depends."""
    words = ["treegen", "eval"]
    for option, value in (
        ("--spec", request.spec),
        ("--kernel", request.kernel),
        ("--device", request.device),
    ):
        words += [option, str(value)] if value is not None else []
    words += ["--folds", str(request.plan.folds), "--repeats", str(request.plan.repeats)]
    words += [word for folder in request.against for word in ("--against", str(folder))]
    words += [] if request.plan.curves else ["--no-curves"]
    words += ["--out", str(request.out)] if request.out is not None else []
    return one_line(shlex.join(words))


def _check(request: Request) -> None:
    for option, value, least in (
        ("--folds", request.plan.folds, 2),
        ("--repeats", request.plan.repeats, 1),
        ("--jobs", request.jobs, 1),
    ):
        if value is not None and value < least:
            raise InputError(f"{option} {value}", f"must be at least {least}")
    if request.out is not None:
        check_writable(request.out, (PAGE, FIGURES))
