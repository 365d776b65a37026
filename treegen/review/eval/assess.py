"""Everything that is known about one table's tree, as data; eval.json holds just this."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from treegen.crossval.choices import Fit
from treegen.crossval.folds import split_copies
from treegen.crossval.parallel import ParallelMap
from treegen.fit.significance import copies
from treegen.review.eval.curves import LearningCurve, learning_curves
from treegen.review.eval.stability import BootstrapDifferences, RefitDifferences, bootstrap, refits
from treegen.review.eval.ways import WayScore, held_out, on_others
from treegen.review.tables import EvalSettings, EvalTable, NoiseFloor, TableSource, noise_floor


@dataclass(frozen=True)
class OtherTable:
    """The tree of a whole table, scored by another table."""

    source: TableSource
    rows: tuple[WayScore, ...]
    refits: RefitDifferences | None  # None where the tables share no scenario: then all are held out


@dataclass(frozen=True)
class Assessment:
    """Everything about one kernel on one device."""

    kernel: str
    device: str
    source: TableSource
    rows: tuple[WayScore, ...]
    noise: NoiseFloor | None
    curves: tuple[LearningCurve, ...]  # empty without --curves
    bootstrap: BootstrapDifferences
    against: tuple[OtherTable, ...]

    @property
    def title(self) -> str:
        return f"{self.kernel} on {self.device}"


@dataclass(frozen=True)
class EvalReport:
    """All assessments, and how they were made."""

    command: str  # ready for a shell
    versions: Mapping[str, str]  # of packages that move figures; helion only where it is installed
    folds: int
    repeats: int
    assessments: tuple[Assessment, ...]
    left_out: tuple[str, ...] = ()  # a line for each table with fewer scenarios than folds


def assess(table: EvalTable, settings: EvalSettings, fit: Fit, run: ParallelMap) -> Assessment:
    """Score the trees that `fit` makes of a table and of parts of it."""
    problem, others = table.problem, [other.problem for other in table.others]
    kernel, device = problem.kernel.name, problem.device.key
    title = f"{kernel} on {device}"
    folds = split_copies(copies(problem.features), settings.folds, settings.repeats)
    rows = held_out(problem, folds, fit, run, f"{title}: folds")
    curves: tuple[LearningCurve, ...] = ()
    if settings.curves:
        curves = learning_curves(problem, folds, rows, fit, run, f"{title}: learning curves")
    (tree,) = run(f"{title}: whole table", fit, [problem])
    samples = bootstrap(problem, tree, fit, run, f"{title}: bootstrap samples")
    scored = on_others(problem, tree, others)
    refitted = refits(problem, tree, others, fit, run, f"{title}: other tables")
    against = tuple(map(OtherTable, (other.source for other in table.others), scored, refitted))
    return Assessment(
        kernel, device, table.source, rows, noise_floor(problem.table), curves, samples, against
    )
