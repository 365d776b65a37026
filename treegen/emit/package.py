"""The text of every file of the output folder, except the lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from treegen.core.errors import InputError
from treegen.core.names import IN_KERNEL
from treegen.core.problem import Problem
from treegen.core.spec import FALLBACK_DEVICE, Spec
from treegen.core.tree import Leaf, Tree
from treegen.emit.python import device_module, kernel_package, top_package
from treegen.emit.triton import Unprintable, in_kernel_module, in_kernel_package


class CompiledTree(Protocol):
    """A problem and its finished tree."""

    @property
    def problem(self) -> Problem: ...

    @property
    def tree(self) -> Tree: ...


Modules = Mapping[tuple[str, str], str]
"""The text of each device's module, by kernel and device."""


def emit_modules(heuristics: Iterable[CompiledTree]) -> Modules:
    """The module of every device that has a tree."""
    modules = {}
    for heuristic in heuristics:
        kernel, device = heuristic.problem.kernel, heuristic.problem.device
        modules[kernel.name, device.key] = device_module(kernel, device.key, device.limits, heuristic.tree)
    return modules


def emit_package(spec: Spec, heuristics: Iterable[CompiledTree], modules: Modules) -> dict[str, str]:
    """Every output text by its path below the output folder. Raises InputError."""
    files = {
        "__init__.py": top_package(spec.kernels),
        **{f"{kernel}/{device}.py": text for (kernel, device), text in modules.items()},
    }
    for kernel in spec.kernels.values():
        for name, text in kernel_package(kernel, spec.devices).items():
            files[f"{kernel.name}/{name}"] = text
        files[f"{kernel.name}/{FALLBACK_DEVICE}.py"] = device_module(
            kernel, FALLBACK_DEVICE, {}, Leaf(kernel.fallback)
        )
    return {**files, **_in_kernel_files(spec, heuristics)}


def _in_kernel_files(spec: Spec, heuristics: Iterable[CompiledTree]) -> dict[str, str]:
    """Modules of Triton functions, for kernels whose spec names `in_kernel` parameters."""
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
