"""Check: the committed modules are the texts that treegen prints for this spec, and there are no others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from treegen.core.errors import InputError
from treegen.core.files import read_text, short, try_path
from treegen.core.names import IN_KERNEL
from treegen.core.spec import FALLBACK_DEVICE, Spec
from treegen.core.tree import size
from treegen.emit.python import device_module, kernel_package
from treegen.emit.triton import Unprintable, in_kernel_module, in_kernel_package
from treegen.review.check.report import CheckReport
from treegen.review.modules import Module, ModuleKey, expected_modules, read_committed
from treegen.review.printing import counted


@dataclass(frozen=True)
class CommittedModules:
    modules: Mapping[ModuleKey, Module]  # in the spec's order
    problems: tuple[str, ...]  # of the modules that could not be read


def read_modules(spec: Spec) -> CommittedModules:
    """Read every module that a build of the spec writes."""
    modules: dict[ModuleKey, Module] = {}
    problems: list[str] = []
    for kernel, device, path in expected_modules(spec, short(spec.output)):
        try:
            module = read_committed(kernel, device, path)
        except InputError as error:
            problems.append(str(error))
            continue
        if device_module(kernel, device.key, device.limits, module.tree) == module.text:
            modules[kernel.name, device.key] = module
        else:
            other = "of another device, or has fewer `values` than the spec"
            problems.append(f"{path}: is the module {other}; run `treegen build`")
    return CommittedModules(modules, tuple(problems))


def check_modules(spec: Spec, committed: CommittedModules) -> CheckReport:
    """Find modules that cannot be read back, files that were edited, and files that belong to no table."""
    problems = list(committed.problems)
    for kernel in spec.kernels.values():
        folder = short(spec.output) / kernel.name
        names = {f"{key}.py" for key in (*kernel.tables, FALLBACK_DEVICE)}
        problems += _package_problems(folder, kernel_package(kernel, spec.devices), names)
        inner = in_kernel_package(kernel)
        problems += _package_problems(folder / IN_KERNEL, inner, names if inner else set())
        if kernel.in_kernel:
            modules = [module for module in committed.modules.values() if module.kernel is kernel]
            problems += _in_kernel_problems(folder / IN_KERNEL, modules)
    modules = list(committed.modules.values())
    inside = sum(bool(module.kernel.in_kernel) for module in modules)
    leaves = sum(size(module.tree) for module in modules)
    seen = [counted(len(modules), "module"), counted(leaves, "leaf", "leaves")]
    seen += [f"{inside} for kernels"] if inside else []
    return CheckReport(", ".join(seen), tuple(problems))


def _package_problems(folder: Path, package: Mapping[str, str], devices: Collection[str]) -> Iterator[str]:
    """Yield the problems of the files in one folder.

    Args:
        package: the texts of the folder's files that belong to no device, by name
        devices: the names of the other files
    """
    try:
        for name in package:
            if read_text(folder / name) != package[name]:
                yield _not_printed(folder / name)
        for path in try_path(folder, lambda place: sorted(place.glob("*.py"))):
            if path.name not in package and path.name not in devices:
                yield f"{path}: no table of the spec has such a module"
    except InputError as error:
        yield str(error)


def _in_kernel_problems(folder: Path, modules: Collection[Module]) -> Iterator[str]:
    """The module that kernels import must be printed from the tree of the same device's module."""
    for module in modules:
        path = folder / f"{module.device.key}.py"
        try:
            if read_text(path) != in_kernel_module(
                module.kernel, module.device.key, module.device.limits, module.tree
            ):
                yield _not_printed(path)
        except InputError as error:
            yield str(error)
        except Unprintable as error:
            yield f"{path}: {error}"


def _not_printed(path: Path) -> str:
    return f"{path}: is not what treegen prints; `treegen build` rewrites it"
