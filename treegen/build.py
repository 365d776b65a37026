"""treegen build: every table of the spec into the texts of `generated/`. Nothing is written here."""

from __future__ import annotations

from pathlib import Path

from treegen.compiler import guarded
from treegen.emit.python import device_module, kernel_package, top_package
from treegen.emit.triton import Unprintable, in_kernel_module, in_kernel_package
from treegen.errors import InputError
from treegen.evaluate import cross_validate, evaluate
from treegen.heuristic import Build, Heuristic
from treegen.lock import LOCK, Locked, lock_text, read_lock
from treegen.names import IN_KERNEL
from treegen.passes.guards import UnprovableConstraint
from treegen.problem import Problem, pose
from treegen.rebuild import rebuild
from treegen.spec import FALLBACK_DEVICE, Spec
from treegen.tablefile import read_table
from treegen.tree import Leaf
from treegen.yesterday import yesterdays_tree


def build(spec: Spec, yesterday: Path | None = None) -> Build:
    """Compile every table that the spec names. Raises InputError.

    yesterday: the output folder of an earlier build, whose trees are kept as far as they are as good.
    """
    problems = _problems(spec)  # all input is read and checked before the first tree is fitted
    locked = Locked() if yesterday is None else read_lock(yesterday)
    try:
        heuristics = tuple(_heuristic(problem, yesterday, locked) for problem in problems)
    except UnprovableConstraint as error:
        raise InputError(spec.path, str(error), line=error.line) from None
    return Build(heuristics, _files(spec, heuristics, locked))


def _problems(spec: Spec) -> list[Problem]:
    folders = {folder for kernel in spec.kernels.values() for folder in kernel.tables.values()}
    tables = {folder: read_table(folder) for folder in sorted(folders)}
    return [
        pose(kernel, spec.devices[device], tables[folder])
        for kernel in spec.kernels.values()
        for device, folder in kernel.tables.items()
    ]


def _heuristic(problem: Problem, yesterday: Path | None, locked: Locked) -> Heuristic:
    kernel, device = problem.kernel, problem.device
    old = None if yesterday is None else yesterdays_tree(yesterday, kernel, device, locked.written(problem))
    learnt = cross_validate(problem)
    kept = rebuild(problem, old, learnt=learnt, other_scenarios=locked.has_other_scenarios(problem)).kept
    return Heuristic(problem, guarded(problem, kept.tree), evaluate(problem, learnt), kept)


def _files(spec: Spec, heuristics: tuple[Heuristic, ...], locked: Locked) -> dict[str, str]:
    modules = {}
    for heuristic in heuristics:
        kernel, device = heuristic.problem.kernel, heuristic.problem.device
        modules[kernel.name, device.key] = device_module(kernel, device.key, device.limits, heuristic.tree)
    files = {
        "__init__.py": top_package(spec.kernels),
        LOCK: lock_text(spec, heuristics, modules, locked),
        **{f"{kernel}/{device}.py": text for (kernel, device), text in modules.items()},
    }
    for kernel in spec.kernels.values():
        for name, text in kernel_package(kernel, spec.devices).items():
            files[f"{kernel.name}/{name}"] = text
        files[f"{kernel.name}/{FALLBACK_DEVICE}.py"] = device_module(
            kernel, FALLBACK_DEVICE, {}, Leaf(kernel.fallback)
        )
    return {**files, **_in_kernel_files(spec, heuristics)}


def _in_kernel_files(spec: Spec, heuristics: tuple[Heuristic, ...]) -> dict[str, str]:
    """What kernels choose themselves, for those of which the spec says so."""
    files = {}
    for kernel in spec.kernels.values():
        for name, text in in_kernel_package(kernel).items():
            files[f"{kernel.name}/{IN_KERNEL}/{name}"] = text
        if kernel.in_kernel:
            files[f"{kernel.name}/{IN_KERNEL}/{FALLBACK_DEVICE}.py"] = in_kernel_module(
                kernel, FALLBACK_DEVICE, {}, Leaf(kernel.fallback)
            )
    for heuristic in heuristics:
        kernel, device = heuristic.problem.kernel, heuristic.problem.device
        if not kernel.in_kernel:
            continue
        try:
            text = in_kernel_module(kernel, device.key, device.limits, heuristic.tree)
        except Unprintable as error:
            raise InputError(spec.path, f"in_kernel of {kernel.name} on {device.key}: {error}") from None
        files[f"{kernel.name}/{IN_KERNEL}/{device.key}.py"] = text
    return files
