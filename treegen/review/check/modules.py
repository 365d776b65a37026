"""Check: committed modules are texts that treegen prints for this spec, and import nothing but, for kernels,
Triton."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from treegen.core.errors import InputError
from treegen.core.files import looked_at, read_text, short
from treegen.core.names import IN_KERNEL
from treegen.core.spec import FALLBACK_DEVICE, KernelSpec, Spec
from treegen.core.tree import size
from treegen.emit.python import device_module, kernel_package
from treegen.emit.triton import Unprintable, in_kernel_module, in_kernel_package
from treegen.review.check.report import Report, count
from treegen.review.compiled_trees import NO_DEVICE, Module, read_committed

STANDARD = {"typing", "collections.abc"}
"""What generated packages may import besides their own modules."""

TRITON = {"triton", "triton.language"}
"""What the modules that kernels import may."""


@dataclass(frozen=True)
class Committed:
    """Modules by kernel and device key, in the spec's order, and what is wrong with the others."""

    modules: Mapping[tuple[str, str], Module]
    problems: tuple[str, ...]


def read_modules(spec: Spec) -> Committed:
    """Every module that the spec asks for."""
    modules: dict[tuple[str, str], Module] = {}
    problems: list[str] = []
    for kernel in spec.kernels.values():
        for key in (*kernel.tables, FALLBACK_DEVICE):
            path = short(spec.output) / kernel.name / f"{key}.py"
            try:
                module = read_committed(kernel, spec.devices.get(key, NO_DEVICE), path)
            except InputError as error:
                problems.append(str(error))
                continue
            if device_module(kernel, key, module.device.limits, module.tree) == module.text:
                modules[kernel.name, key] = module
            else:
                problems.append(f"{path}: is the module of another device")
    return Committed(modules, tuple(problems))


def check_modules(spec: Spec, committed: Committed) -> Report:
    """What cannot be read back, what is foreign, and what imports anything."""
    problems = list(committed.problems)
    for kernel in spec.kernels.values():
        folder = short(spec.output) / kernel.name
        names = {f"{key}.py" for key in (*kernel.tables, FALLBACK_DEVICE)}
        problems += _package_problems(folder, kernel_package(kernel, spec.devices), names, STANDARD)
        inner = in_kernel_package(kernel)
        problems += _package_problems(folder / IN_KERNEL, inner, names if inner else set(), TRITON)
        problems += _in_kernel_problems(folder / IN_KERNEL, kernel, committed)
    modules = committed.modules.values()
    leaves = sum(size(module.tree) for module in modules)
    inside = sum(bool(module.kernel.in_kernel) for module in modules)
    seen = [count(len(modules), "module"), count(leaves, "leaf", "leaves")]
    seen += [f"{inside} for kernels"] if inside else []
    return Report(", ".join(seen), tuple(problems))


def _package_problems(
    folder: Path, package: Mapping[str, str], devices: Collection[str], importable: Collection[str]
) -> Iterator[str]:
    """package: the folder's files that belong to no device, by name. devices: the names of the others."""
    try:
        for name in package:
            if read_text(folder / name) != package[name]:
                yield _not_printed(folder / name)
        for path in looked_at(folder, lambda place: sorted(place.glob("*.py"))):
            if path.name not in package and path.name not in devices:
                yield f"{path}: no table of the spec has such a module"
            for line, name in _imports(path):
                if name not in importable:
                    yield f"{path}:{line}: imports {name}"
    except InputError as error:
        yield str(error)


def _in_kernel_problems(folder: Path, kernel: KernelSpec, committed: Committed) -> Iterator[str]:
    """Where a module of the host reads, the one that kernels import must hold what follows from it."""
    for (name, key), module in committed.modules.items():
        if name != kernel.name or not kernel.in_kernel:
            continue
        path = folder / f"{key}.py"
        try:
            if read_text(path) != in_kernel_module(kernel, key, module.device.limits, module.tree):
                yield _not_printed(path)
        except InputError as error:
            yield str(error)
        except Unprintable as error:
            yield f"{path}: {error}"


def _not_printed(path: Path) -> str:
    return f"{path}: is not what treegen prints; `treegen build` writes it anew"


def _imports(path: Path) -> Iterable[tuple[int, str]]:
    """Line and name of every absolute import; none where the text is not Python, which is told elsewhere."""
    try:
        nodes = list(ast.walk(ast.parse(read_text(path))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = [(n.lineno, alias.name) for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    found += [(n.lineno, n.module or "") for n in nodes if isinstance(n, ast.ImportFrom) and not n.level]
    return sorted(found)
