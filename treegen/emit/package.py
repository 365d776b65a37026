"""The text of every file of the output folder, except the lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treegen.core.errors import InputError
from treegen.core.names import IN_KERNEL
from treegen.core.problem import Problem
from treegen.core.spec import FALLBACK_DEVICE, KernelSpec, Spec
from treegen.core.tree import Leaf, Tree
from treegen.emit.python import device_module, kernel_package, top_package
from treegen.emit.triton import Unprintable, in_kernel_module, in_kernel_package


def emit_package(spec: Spec, trees: Iterable[tuple[Problem, Tree]]) -> dict[str, str]:
    """Every output text by its path below the output folder. trees: finished ones. Raises InputError."""
    files = {"__init__.py": top_package(spec.kernels)}
    for kernel in spec.kernels.values():
        for name, text in kernel_package(kernel, spec.devices).items():
            files[f"{kernel.name}/{name}"] = text
        for name, text in in_kernel_package(kernel).items():
            files[f"{kernel.name}/{IN_KERNEL}/{name}"] = text
        files |= _modules(spec, kernel, FALLBACK_DEVICE, {}, Leaf(kernel.fallback))
    for problem, tree in trees:
        files |= _modules(spec, problem.kernel, problem.device.key, problem.device.limits, tree)
    return files


def _modules(
    spec: Spec, kernel: KernelSpec, device: str, limits: Mapping[str, int], tree: Tree
) -> dict[str, str]:
    """A device's module, and the one for Triton if the kernel's spec names `in_kernel` parameters."""
    files = {f"{kernel.name}/{device}.py": device_module(kernel, device, limits, tree)}
    if kernel.in_kernel:
        try:
            text = in_kernel_module(kernel, device, limits, tree)
        except Unprintable as error:
            raise InputError(spec.path, f"in_kernel of {kernel.name} on {device}: {error}") from None
        files[f"{kernel.name}/{IN_KERNEL}/{device}.py"] = text
    return files
