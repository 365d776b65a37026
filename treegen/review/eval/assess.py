"""From one table to everything that is said about its tree."""

from __future__ import annotations

from dataclasses import dataclass

from treegen.core.problem import Problem
from treegen.crossval.choices import Fit
from treegen.crossval.folds import split_copies
from treegen.crossval.parallel import ParallelMap
from treegen.fit.significance import copies
from treegen.review.eval.compare import held_out, on_others
from treegen.review.eval.curves import curves
from treegen.review.eval.noise import noise_floor
from treegen.review.eval.results import Against, Assessment, Source
from treegen.review.eval.stability import against, bootstrap


@dataclass(frozen=True)
class Posed:
    """A table as a problem, and what to call it."""

    problem: Problem
    source: Source


@dataclass(frozen=True)
class Subject:
    """A table to assess, and others that judge its tree: posed for the same kernel and device, with the same
    features to split on."""

    main: Posed
    others: tuple[Posed, ...]

    @property
    def title(self) -> str:
        return f"{self.main.problem.kernel.name} on {self.main.problem.device.key}"


@dataclass(frozen=True)
class Plan:
    """folds: at least 2, no more than there are scenarios. curves: whether learning curves are wanted."""

    folds: int
    repeats: int
    curves: bool


def assess(subject: Subject, plan: Plan, fit: Fit, run: ParallelMap) -> Assessment:
    """Judge the trees that `fit` makes of a table and of parts of it."""
    title, problem = subject.title, subject.main.problem
    folds = split_copies(copies(problem.features), plan.folds, plan.repeats)
    rows = held_out(problem, folds, fit, run, f"{title}: folds")
    learning = curves(problem, folds, rows, fit, run, f"{title}: learning curves") if plan.curves else ()
    (tree,) = run(f"{title}: whole table", fit, [problem])
    shaken = bootstrap(problem, tree, fit, run, f"{title}: bootstrap samples")
    others = [other.problem for other in subject.others]
    judged = on_others(problem, tree, others)
    refits = against(problem, tree, others, fit, run, f"{title}: other tables")
    judges = tuple(map(Against, (other.source for other in subject.others), judged, refits))
    return Assessment(
        problem.kernel.name,
        problem.device.key,
        subject.main.source,
        rows,
        noise_floor(problem.table),
        learning,
        shaken,
        judges,
    )
