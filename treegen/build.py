"""The compiler from top to bottom: every stage and every pass, in the order in which they run.

Nothing is written here: `treegen.write` writes the texts that `build` returns.
"""

from __future__ import annotations

from pathlib import Path

from treegen.core.errors import InputError
from treegen.core.problem import Problem
from treegen.core.spec import Spec
from treegen.core.tree import Tree
from treegen.crossval.folds import FoldTree, evaluate, folds_of, held_out
from treegen.crossval.parallel import ParallelMap, ReportProgress, no_report, processes
from treegen.emit.package import emit_package
from treegen.fit.costs import choice_costs_of
from treegen.fit.search import search_tree
from treegen.fit.split_pruning import prune_splits
from treegen.passes.bounds import refuse_unprovable
from treegen.passes.guards import guard_leaves, guard_tree
from treegen.passes.simplify import align, simplify
from treegen.read.problem import read_table, spec_problem
from treegen.update.basis import basis_of, changed_basis
from treegen.update.keep import Build, DeviceHeuristic, keep
from treegen.write.lock import LOCK, MOST_JUMP, Lock, best_time, lock_text, read_lock

SCENARIOS_A_PROCESS = 500  # fewer are fitted in the time that a process takes to start


def build(
    spec: Spec,
    previous: Path | None = None,
    *,
    fresh: bool = False,
    expect_jump: bool = False,
    jobs: int = 1,
    report: ReportProgress = no_report,
) -> Build:
    """Compile every table that the spec names. Raises InputError.

    Args:
        spec: the spec
        previous: the output folder of an earlier build; None if there is none
        fresh: fit every tree anew; otherwise the previous trees stay unless fresh ones are better
        expect_jump: accept times that all changed by 10x or more since the earlier build
        jobs: processes that fit at most; small tables get one
        report: called with the progress
    """
    problems = read_problems(spec)  # all input is checked before the first tree is fitted
    lock = read_lock(previous) if previous else Lock()
    if not expect_jump:
        for problem in problems:
            _refuse_jump(problem, lock)
    worth = sum(len(problem.cost) for problem in problems) // SCENARIOS_A_PROCESS
    with processes(max(1, min(jobs, worth)), report) as spread:
        heuristics = tuple(compile_heuristic(problem, lock, spread, fresh=fresh) for problem in problems)
    files = emit_package(spec, ((heuristic.problem, heuristic.tree) for heuristic in heuristics))
    return Build(heuristics, {**files, LOCK: lock_text(spec, heuristics, files, lock)})


def _refuse_jump(problem: Problem, lock: Lock) -> None:
    """Raise InputError if best times are 10x or more off those of the last build, on the same scenarios."""
    before, now = lock.best_time(problem), best_time(problem)
    if before is not None and now is not None and not 1 / MOST_JUMP < now / before < MOST_JUMP:
        what = f"its best times are {now / before:.3g}x those of the last build; tables hold microseconds"
        raise InputError(problem.table.folder, f"{what}. If that is meant, build with --expect-jump")


def read_problems(spec: Spec) -> list[Problem]:
    """One problem per kernel and device of the spec. Raises InputError."""
    folders = {folder for kernel in spec.kernels.values() for folder in kernel.tables.values()}
    tables = {folder: read_table(folder) for folder in sorted(folders)}
    problems = [
        spec_problem(kernel, spec.devices[device], tables[folder])
        for kernel in spec.kernels.values()
        for device, folder in kernel.tables.items()
    ]
    for problem in problems:
        refuse_unprovable(problem, spec.path)
    return problems


def compile_heuristic(problem: Problem, lock: Lock, spread: ParallelMap, *, fresh: bool) -> DeviceHeuristic:
    """The tree of one problem: fitted, cross-validated, compared with the previous tree, guarded."""
    folds = folds_of(problem)
    what = f"trees of {problem.kernel.name} on {problem.device.key}"
    fitted, *others = spread(what, fit_tree, [problem, *(problem.rows(fold.train) for fold in folds)])
    fold_trees = tuple(map(FoldTree, folds, others))
    chosen = keep(
        problem,
        None if fresh else lock.previous_tree(problem),
        fitted,
        lambda: held_out(problem, fold_trees),
        other_scenarios=lock.has_other_scenarios(problem),
        changed=changed_basis(lock.basis(problem), basis_of(problem)),
    )
    tree = guard_tree(problem, chosen.tree)
    return DeviceHeuristic(problem, tree, evaluate(problem, fold_trees), chosen)


def fit_tree(problem: Problem) -> Tree:
    """The tree that fits a problem within its kernel's budget, with guards on what its table measures."""
    tree = search_tree(problem, problem.kernel.budget)
    tree = prune_splits(choice_costs_of(problem), tree)
    tree = simplify(tree)
    tree = align(tree, problem.kernel, problem.device)
    return simplify(guard_leaves(simplify(tree), problem, measured_only=True))
