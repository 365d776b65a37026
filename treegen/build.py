"""treegen build: every table of the spec into the texts of `generated/`. Nothing is written here."""

from __future__ import annotations

from treegen.compiler import compile_tree
from treegen.emit.python import device_module, kernel_package, top_package
from treegen.errors import InputError
from treegen.evaluate import evaluate
from treegen.heuristic import Build, Heuristic
from treegen.lock import LOCK, lock_text
from treegen.passes.guards import UnprovableConstraint
from treegen.problem import Problem, pose
from treegen.spec import FALLBACK_DEVICE, Spec
from treegen.tablefile import read_table
from treegen.tree import Leaf


def build(spec: Spec) -> Build:
    """Compile every table that the spec names. Raises InputError."""
    problems = _problems(spec)  # all input is read and checked before the first tree is fitted
    try:
        trees = [compile_tree(problem) for problem in problems]
    except UnprovableConstraint as error:
        raise InputError(spec.path, str(error), line=error.line) from None
    heuristics = tuple(map(Heuristic, problems, trees, map(evaluate, problems)))
    return Build(heuristics, _files(spec, heuristics))


def _problems(spec: Spec) -> list[Problem]:
    folders = {folder for kernel in spec.kernels.values() for folder in kernel.tables.values()}
    tables = {folder: read_table(folder) for folder in sorted(folders)}
    return [
        pose(kernel, spec.devices[device], tables[folder])
        for kernel in spec.kernels.values()
        for device, folder in kernel.tables.items()
    ]


def _files(spec: Spec, heuristics: tuple[Heuristic, ...]) -> dict[str, str]:
    files = {"__init__.py": top_package(spec.kernels), LOCK: lock_text(spec, heuristics)}
    for kernel in spec.kernels.values():
        for name, text in kernel_package(kernel, spec.devices).items():
            files[f"{kernel.name}/{name}"] = text
        files[f"{kernel.name}/{FALLBACK_DEVICE}.py"] = device_module(
            kernel, FALLBACK_DEVICE, {}, Leaf(kernel.fallback)
        )
    for heuristic in heuristics:
        kernel, device = heuristic.problem.kernel, heuristic.problem.device
        files[f"{kernel.name}/{device.key}.py"] = device_module(
            kernel, device.key, device.limits, heuristic.tree
        )
    return files
