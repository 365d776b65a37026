"""The committed modules of a spec, with what they were printed from, and their tables."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from treegen.core import expr
from treegen.core.errors import InputError, InputErrors, shown
from treegen.core.files import digest, read_text, try_path
from treegen.core.heuristic import Heuristic, is_of, questions
from treegen.core.problem import Problem
from treegen.core.spec import FALLBACK_DEVICE, NO_DEVICE, DeviceSpec, KernelSpec, Spec
from treegen.emit.module import device_module
from treegen.emit.package import kernel_package
from treegen.read.problem import read_table, spec_problem
from treegen.read.spec import find_spec, read_spec
from treegen.write.files import content_of
from treegen.write.lock import Lock, read_lock

ModuleKey = tuple[str, str]
"""A kernel's name and a device's key."""
_COMMENT = re.compile(r"^(    Row\(.*\),  # \d+): .*$", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Module:
    """A committed module."""

    kernel: KernelSpec
    device: DeviceSpec
    path: Path
    text: str
    heuristic: Heuristic


def read_modules(spec: Spec) -> dict[ModuleKey, Module]:
    """The modules in the spec's output folder. Raises InputError for one that no build of this spec wrote."""
    found = read_committed(spec, spec.output)
    for key, one in found.items():
        if isinstance(one, str) and try_path(_path(spec.output, key), Path.is_file):
            raise InputErrors(one)
    return {key: one for key, one in found.items() if isinstance(one, Module)}


def _path(output: Path, key: ModuleKey) -> Path:
    return output / key[0] / f"{key[1]}.py"


def read_committed(spec: Spec, output: Path, *, older: bool = False) -> dict[ModuleKey, Module | str]:
    """Every module that a build of the spec writes below `output`, with the rows that the lock there stores.

    In place of a module that treegen does not print for its rows, or beside which it would print other shared
    files, stands why it cannot be read. older: accept what another version of treegen printed, too, if the
    lock has its SHA-256.
    """
    found: dict[ModuleKey, Module | str] = {}
    lock = cache(partial(read_lock, output))
    for kernel in spec.kernels.values():
        other = cache(partial(_other_shared_file, output / kernel.name, kernel, spec))
        for key in ((kernel.name, device) for device in (*kernel.tables, FALLBACK_DEVICE)):
            try:
                found[key] = _read_module(spec, output, key, lock, other, older)
            except InputError as error:
                found[key] = str(error)
    return found


def _other_shared_file(folder: Path, kernel: KernelSpec, spec: Spec) -> Path | None:
    """The first file that the modules of a kernel share and that treegen would print otherwise."""
    files = ((folder / name, text) for name, text in kernel_package(kernel, spec.devices).items())
    return next((file for file, text in files if content_of(file) != text.encode()), None)


def _read_module(
    spec: Spec,
    output: Path,
    key: ModuleKey,
    read: Callable[[], Lock],
    other_file: Callable[[], Path | None],
    older: bool,
) -> Module:
    kernel, device = spec.kernels[key[0]], spec.devices.get(key[1], NO_DEVICE)
    path = _path(output, key)
    text, lock, other = read_text(path), read(), other_file()
    if other is not None and not older:
        raise InputError(other, "is not what treegen prints for this spec; `treegen build` rewrites it")
    older &= other is not None or not lock.is_current  # beside what this treegen printed are its modules
    try:
        found = lock.stored(kernel, device.key)
    except InputError as error:
        raise InputError(path, f"has no stored rows ({error})") from None
    is_built = lock.entry(kernel.name, device.key).get("module") == digest(text)
    if older and not found.regimes:  # the lock has no digest of this module, whose one config says it all
        printed = re.findall(r"^(\w+) = Config\(", text, re.MULTILINE)
        is_built = printed == [kernel.constant_name(kernel.fallback)]
    own = is_of(found, kernel)
    as_printed = own and device_module(kernel, device.key, device.limits, found) == plain(text)
    if not as_printed and not (own and older and is_built):
        what = "is not what treegen prints for its stored rows; `treegen build` rewrites it"
        if is_built:
            what = "was built from another spec or other rows, or by another treegen: run `treegen build`"
        raise InputError(path, what)
    return Module(kernel, device, path, text, found)


def plain(text: str) -> str:
    """A module's text without what its comments say of its rows: that changes with every table."""
    return _COMMENT.sub(r"\1", text)


def loaded(module: Module) -> dict[str, Any]:
    """The names of a module, which imports nothing but the kernel's printed `config.py`."""
    namespace: dict[str, Any] = {"__name__": module.kernel.name}
    for text in (kernel_package(module.kernel, {})["config.py"], module.text):
        tree = ast.parse(text)
        tree.body = [node for node in tree.body if not (isinstance(node, ast.ImportFrom) and node.level)]
        exec(compile(tree, str(module.path), "exec"), namespace)
    return namespace


def numbers(module: Module) -> set[int]:
    """Every number of a module's conditions, derived features, trees, configs and limits."""
    kernel, regimes = module.kernel, module.heuristic.regimes
    tests = [*kernel.conditions, *(rule.test for rule in kernel.constraints)]
    texts = [expr.to_text(one) for one in (*tests, *kernel.derived.values())]
    found = {int(number) for text in texts for number in re.findall(r"-?\d+(?:_\d+)*", text)}
    values = {value for config in module.heuristic.configs for _, value in config.parameters}
    bounds = {split.threshold for regime in regimes for split in questions(regime.tree)}
    return {1} | found | values | bounds | set(module.device.limits.values())


@dataclass(frozen=True)
class TunedModule:
    """A committed module and its table."""

    module: Module
    problem: Problem
    other_devices: tuple[str, ...]  # of the kernel, with a module and a table
    root: Path  # the spec's folder


def read_module_and_table(spec_path: Path | None, kernel_name: str, device: str | None) -> TunedModule:
    """Read a kernel's module and table; without a device, of the first that has both. Raises InputError."""
    spec = read_spec(find_spec(spec_path))
    modules = read_modules(spec)
    ready = [key for name, key in modules if name == kernel_name and key != FALLBACK_DEVICE]
    problem, *_ = read_tables(spec, kernel_name, device or next(iter(ready), None))
    key = problem.device.key
    if key not in ready:
        raise missing_module(spec, (kernel_name, key))
    others = tuple(other for other in ready if other != key)
    return TunedModule(modules[kernel_name, key], problem, others, spec.path.resolve().parent)


def missing_module(spec: Spec, key: ModuleKey) -> InputError:
    return InputError(_path(spec.output, key), "no such module; `treegen build` writes it")


def read_tables(spec: Spec, kernel: str | None, device: str | None) -> list[Problem]:
    """The tables of a kernel and a device; None selects all. Raises InputError, also if there is none."""
    every = [(of, key) for of in spec.selected(kernel) for key in of.tables]
    chosen = [(of, key) for of, key in every if device in (None, key)]
    if not chosen:
        there_are = f"; there are: {', '.join(dict.fromkeys(key for _, key in every))}" if every else ""
        of_kernel = f"kernel {kernel}" if kernel else "any kernel"
        of_device = f" for the device {shown(device)}" if device and every else ""
        raise InputError(spec.path, f"names no table of {of_kernel}{of_device}{there_are}")
    table_in = cache(read_table)  # several kernels may have one table
    return [spec_problem(of, spec.devices[key], table_in(of.tables[key])) for of, key in chosen]
