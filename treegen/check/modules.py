"""Check: committed modules are texts that treegen prints for this spec, and import nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from treegen.check.report import Report, count
from treegen.commands.parsers import short
from treegen.emit.python import device_module, kernel_package
from treegen.errors import InputError
from treegen.files import looked_at, read_text
from treegen.review.state import NO_DEVICE, Module, read_committed
from treegen.spec import FALLBACK_DEVICE, KernelSpec, Spec
from treegen.tree import size

STANDARD = {"typing", "collections.abc"}
"""What generated packages may import besides their own modules."""


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
        problems += _package_problems(spec, kernel)
    modules = committed.modules.values()
    leaves = sum(size(module.tree) for module in modules)
    return Report(f"{count(len(modules), 'module')}, {count(leaves, 'leaf', 'leaves')}", tuple(problems))


def _package_problems(spec: Spec, kernel: KernelSpec) -> Iterator[str]:
    folder = short(spec.output) / kernel.name
    package = kernel_package(kernel, spec.devices)
    expected = {*package, *(f"{key}.py" for key in (*kernel.tables, FALLBACK_DEVICE))}
    try:
        for name in package:
            if read_text(folder / name) != package[name]:
                yield f"{folder / name}: is not what treegen prints; `treegen build` writes it anew"
        for path in looked_at(folder, lambda place: sorted(place.glob("*.py"))):
            if path.name not in expected:
                yield f"{path}: no table of the spec has such a module"
            yield from (f"{path}:{line}: imports {name}" for line, name in _imports(path))
    except InputError as error:
        yield str(error)


def _imports(path: Path) -> Iterable[tuple[int, str]]:
    """Line and name of every import from outside the package; none where the text is not Python, which
    reading it back tells."""
    try:
        nodes = list(ast.walk(ast.parse(read_text(path))))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    found = [(n.lineno, alias.name) for n in nodes if isinstance(n, ast.Import) for alias in n.names]
    found += [(n.lineno, n.module or "") for n in nodes if isinstance(n, ast.ImportFrom) and not n.level]
    return [(line, name) for line, name in sorted(found) if name not in STANDARD]
