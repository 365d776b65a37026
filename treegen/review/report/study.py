"""Everything a report says about one kernel on one device, as data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from treegen.core.errors import InputError
from treegen.core.problem import Problem
from treegen.core.spec import Config
from treegen.crossval.choices import Choices, Decisions, Fit, decide, judge
from treegen.crossval.evaluate import FOLDS, cross_validate, held_out
from treegen.crossval.heldout import Quality, quality
from treegen.crossval.peers import single_best
from treegen.fit.significance import TableNoise, table_noise
from treegen.review.compiled_trees import Module
from treegen.review.eval.noise import Noise as Floor
from treegen.review.eval.noise import noise_floor
from treegen.review.eval.results import Source
from treegen.review.report.drawntree import Drawn, drawn
from treegen.review.report.planes import Plane, planes


@dataclass(frozen=True)
class Task:
    """What to study, for another process."""

    problem: Problem
    source: Source
    module: Module
    fit: Fit


@dataclass(frozen=True)
class Way:
    """One way of choosing, judged in every scenario. cost: [scenarios] int64, as in Problem."""

    cost: npt.NDArray[np.int64]
    quality: Quality


@dataclass(frozen=True)
class Study:
    """launched: what the committed module chooses in each scenario, `ours` how good that is. unseen: the same
    fit, each scenario judged by a tree that has not seen it; None for tables too small for it. single: the
    one config of least total cost. fixed: the spec's fallback everywhere. times: [scenarios, configs]
    microseconds, NaN where there is none."""

    problem: Problem
    source: Source
    module: Module
    launched: Decisions
    ours: Way
    unseen: Way | None
    single_config: Config
    single: Way
    fixed: Way
    noise: TableNoise
    floor: Floor | None
    times: npt.NDArray[np.float64]
    tree: Drawn
    planes: tuple[Plane, ...]

    @property
    def title(self) -> str:
        return f"{self.problem.kernel.name} on {self.problem.device.key}"


def study(task: Task) -> Study:
    """Judge a committed module by its table. Raises InputError where it asks what the table does not hold."""
    problem, module = task.problem, task.module
    try:
        launched = decide(module.tree, problem)
    except KeyError as error:
        what = f"asks for {error.args[0]}, which {problem.table.folder} does not hold; run `treegen build`"
        raise InputError(module.path, what) from None
    chosen = single_best(problem, problem.kernel.budget).choose(problem)
    ours = judge(launched, problem)
    return Study(
        problem,
        task.source,
        module,
        launched,
        _way(ours, problem),
        _unseen(problem, task.fit),
        chosen[0],
        _way(judge(chosen, problem), problem),
        _way(judge((problem.kernel.fallback,) * len(launched), problem), problem),
        table_noise(problem.table),
        noise_floor(problem.table),
        problem.times(),
        drawn(module.tree, problem, ours.cost),
        planes(problem, launched),
    )


def _unseen(problem: Problem, fit: Fit) -> Way | None:
    if len(problem.cost) < 2 * FOLDS:
        return None
    cost = held_out(problem, cross_validate(problem, fit))
    return _way(Choices(cost.ravel(), problem.scenarios * len(cost)), problem) if len(cost) else None


def _way(judged: Choices, problem: Problem) -> Way:
    return Way(judged.cost, quality(judged, problem.table.cells))
