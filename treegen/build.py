"""The compiler from top to bottom: every stage, in the order in which they run.

Nothing is written here: `treegen.write` writes the texts that `build` returns.
"""

from __future__ import annotations

from functools import partial
from operator import call
from pathlib import Path
from typing import NamedTuple

from treegen.core.errors import InputError
from treegen.core.heuristic import Heuristic
from treegen.core.problem import Problem
from treegen.core.spec import Spec
from treegen.core.table import Cells
from treegen.crossval.folds import DeviceHeuristic, evaluate, training_parts
from treegen.crossval.parallel import ParallelMap, processes
from treegen.crossval.score import Score, with_comments
from treegen.emit.package import emit_package
from treegen.fit.costs import Scenarios
from treegen.fit.fit import Origin, refit
from treegen.read.problem import refuse_failing
from treegen.write.lock import LOCK, MOST_JUMP, Lock, best_time, lock_text, read_lock
from treegen.write.modules import read_tables

SCENARIOS_A_PROCESS = 500  # fewer are fitted in the time that a process takes to start


class Build(NamedTuple):
    """Everything that a build writes."""

    heuristics: tuple[DeviceHeuristic, ...]
    files: dict[str, str]  # texts by their path below the output folder


def build(
    spec: Spec,
    previous: Path | None = None,
    *,
    fresh: bool = False,
    expect_jump: bool = False,
    jobs: int = 1,
) -> Build:
    """Compile every table that the spec names. Raises InputError.

    Args:
        spec: the spec
        previous: the output folder of an earlier build; None if there is none
        fresh: fit everything anew; otherwise what was fitted before stays unless fresh fits are better
        expect_jump: accept times that all changed by 10x or more since the earlier build
        jobs: processes that fit at most; small tables get one
    """
    problems = read_problems(spec)  # all input is checked before the first fit
    lock = read_lock(previous) if previous else Lock()
    if not expect_jump:
        for problem in problems:
            _refuse_jump(problem, lock)
    worth = sum(len(problem.cost) for problem in problems) // SCENARIOS_A_PROCESS
    with processes(max(1, min(jobs, worth))) as parallel_map:
        heuristics = tuple(
            compile_heuristic(problem, lock, parallel_map, fresh=fresh) for problem in problems
        )
    modules = ((own.problem.kernel, own.problem.device, own.heuristic) for own in heuristics)
    files = emit_package(spec, modules)
    return Build(heuristics, {**files, LOCK: lock_text(spec, heuristics, files, lock)})


def _refuse_jump(problem: Problem, lock: Lock) -> None:
    """Raise InputError if best times are 10x or more off those of the last build, on the same scenarios."""
    before, now = lock.best_time(problem), best_time(problem)
    if before is not None and now is not None and not 1 / MOST_JUMP < now / before < MOST_JUMP:
        what = f"its best times are {now / before:.3g}x those of the last build; tables hold microseconds"
        raise InputError(problem.table.folder, f"{what}. If that is meant, build with --expect-jump")


def read_problems(spec: Spec) -> list[Problem]:
    """One problem per kernel and device of the spec. Raises InputError."""
    problems = read_tables(spec, None, None) if any(k.tables for k in spec.kernels.values()) else []
    for problem in problems:
        refuse_failing(problem)
        for regime, scenarios in zip(problem.kernel.regimes, Scenarios(problem).regimes, strict=True):
            if not len(scenarios):
                raise InputError(problem.table.folder, f"has no scenario of the regime {regime.name}")
    return problems


def compile_heuristic(
    problem: Problem, lock: Lock, parallel_map: ParallelMap, *, fresh: bool
) -> DeviceHeuristic:
    """One problem's heuristic: fitted from the previous one, and cross-validated."""
    previous = None if fresh else lock.previous(problem)
    kept = previous if isinstance(previous, Heuristic) else None
    tasks = [(problem, kept), *((part, None) for part in training_parts(problem))]
    (fitted, origin), *others = parallel_map(
        f"rows of {problem}", call, [partial(refit, part, before) for part, before in tasks]
    )
    score = Score.of(problem, fitted)
    if failing := score.quality.failed:  # no rows within the budget avoid it
        what = f"{failing} scenarios would get a config that failed: too few rows"
        raise InputError(problem.table.folder, f"{problem.kernel.name}: {what}")
    evaluation = evaluate(problem, [heuristic for heuristic, _ in others])
    why = previous if isinstance(previous, str) else None
    if kept is not None and origin is Origin.FRESH:
        by_time = problem.table.cells is Cells.MEASURED
        better = "is more than 0.5% faster" if by_time else "wins over 0.5% more scenarios"
        why = f"a fresh fit {better} by this table"
    return DeviceHeuristic(problem, with_comments(fitted, score), score, origin, evaluation, why)
