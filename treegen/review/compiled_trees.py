"""What a folder launches: its spec and the committed modules, read back into trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from treegen.core.errors import InputError
from treegen.core.files import looked_at, read_text
from treegen.core.spec import FALLBACK_DEVICE, DeviceSpec, KernelSpec, Spec
from treegen.core.tree import Tree
from treegen.update.module_reader import UnreadableModule, read_module

NO_DEVICE = DeviceSpec(FALLBACK_DEVICE, (), None, "", MappingProxyType({}))
"""Whom the module of last resort is for."""


@dataclass(frozen=True)
class Module:
    """A committed module. tree: as printed, with its guards and without gaps."""

    kernel: KernelSpec
    device: DeviceSpec
    path: Path
    text: str
    tree: Tree


@dataclass(frozen=True)
class State:
    """modules: by kernel and device key, those that exist, in the spec's order; the last of each kernel is
    that of FALLBACK_DEVICE. label: what a reader calls this state."""

    label: str
    spec: Spec
    output: Path
    modules: Mapping[tuple[str, str], Module]


def read_state(spec: Spec, output: Path | None = None, label: str | None = None) -> State:
    """The modules in an output folder (the spec's, if none is named). Raises InputError for one that no
    build with this spec wrote."""
    output = spec.output if output is None else output
    modules = {}
    for kernel in spec.kernels.values():
        for key in (*kernel.tables, FALLBACK_DEVICE):
            device = spec.devices.get(key, NO_DEVICE)
            path = output / kernel.name / f"{key}.py"
            if looked_at(path, Path.is_file):
                modules[kernel.name, key] = read_committed(kernel, device, path)
    return State(label or str(output), spec, output, MappingProxyType(modules))


def read_committed(kernel: KernelSpec, device: DeviceSpec, path: Path) -> Module:
    """The module in a file. Raises InputError where this spec prints no such text."""
    text = read_text(path)
    try:
        tree = read_module(text, kernel, path, device.limits)
    except UnreadableModule as error:
        raise InputError.from_message(f"{error}; `treegen build` writes it anew") from None
    return Module(kernel, device, path, text, tree)
