"""Everything that a report says about one kernel on one device, as data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError
from treegen.core.problem import Problem
from treegen.core.spec import Config
from treegen.core.table import Cells
from treegen.crossval.choices import Choices, Decisions, Fit, decisions_of, score_decisions
from treegen.crossval.evaluate import FOLDS, cross_validate, held_out
from treegen.crossval.heldout import Quality, quality
from treegen.crossval.peers import single_best
from treegen.fit.significance import TableNoise, table_noise
from treegen.review.modules import Module
from treegen.review.report.drawn_tree import DrawnTree, drawn_tree
from treegen.review.report.planes import FeaturePlane, planes
from treegen.review.tables import NoiseFloor, TableSource, noise_floor


@dataclass(frozen=True)
class StudyTask:
    """A module to study, for another process."""

    problem: Problem
    source: TableSource
    module: Module
    fit: Fit


@dataclass(frozen=True)
class ScoredChoices:
    """One way's choice in every scenario. cost: [scenarios] int64, as in Problem."""

    cost: npt.NDArray[np.int64]
    quality: Quality


@dataclass(frozen=True)
class ModuleStudy:
    """A committed module, scored by its table.

    times: [scenarios, configs] float64, microseconds; NaN not measured, inf failed.
    """

    problem: Problem
    source: TableSource
    module: Module
    launched: Decisions  # by the module, in each scenario
    ours: ScoredChoices  # the same, scored
    unseen: ScoredChoices | None  # held out, from fresh trees of the same fit; None for a small table
    single_config: Config  # of least total cost
    single: ScoredChoices
    fixed: ScoredChoices  # the spec's fallback everywhere
    noise: TableNoise
    floor: NoiseFloor | None
    times: npt.NDArray[np.float64]
    tree: DrawnTree
    planes: tuple[FeaturePlane, ...]

    @property
    def title(self) -> str:
        return f"{self.problem.kernel.name} on {self.problem.device.key}"

    @property
    def knows_times(self) -> bool:
        """Return whether the table holds more than each scenario's winner."""
        return self.problem.table.cells is Cells.MEASURED


def study(task: StudyTask) -> ModuleStudy:
    """Score a committed module by its table. Raises InputError where that lacks a feature of the tree."""
    problem, module = task.problem, task.module
    try:
        launched = decisions_of(module.tree, problem)
    except KeyError as error:
        what = f"splits on {error.args[0]}, which {problem.table.folder} does not hold; run `treegen build`"
        raise InputError(module.path, what) from None
    chosen = single_best(problem, problem.kernel.budget).choose(problem)
    ours = score_decisions(launched, problem)
    fixed = score_decisions((problem.kernel.fallback,) * len(launched), problem)
    return ModuleStudy(
        problem,
        task.source,
        module,
        launched,
        _scored(ours, problem),
        _held_out(problem, task.fit),
        chosen[0],
        _scored(score_decisions(chosen, problem), problem),
        _scored(fixed, problem),
        table_noise(problem.table),
        noise_floor(problem.table),
        problem.times(),
        drawn_tree(module.tree, problem, ours.cost),
        planes(problem, launched),
    )


def _held_out(problem: Problem, fit: Fit) -> ScoredChoices | None:
    if len(problem.cost) < 2 * FOLDS:
        return None
    cost = held_out(problem, cross_validate(problem, fit))
    return _scored(Choices(cost.ravel(), problem.scenarios * len(cost)), problem) if len(cost) else None


def _scored(choices: Choices, problem: Problem) -> ScoredChoices:
    return ScoredChoices(choices.cost, quality(choices, problem.table.cells))
