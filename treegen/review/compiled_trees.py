"""The committed modules of a spec, read back into trees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from treegen.core.files import read_text, try_path
from treegen.core.spec import FALLBACK_DEVICE, DeviceSpec, KernelSpec, Spec
from treegen.core.tree import Tree
from treegen.write.lock import committed_tree

NO_DEVICE = DeviceSpec(FALLBACK_DEVICE, (), None, "", {})
"""The device of the `default` module, which serves GPUs that the spec does not name."""

ModuleKey = tuple[str, str]
"""A kernel's name and a device's key."""


@dataclass(frozen=True)
class Module:
    """A committed module."""

    kernel: KernelSpec
    device: DeviceSpec
    path: Path
    text: str
    tree: Tree  # as printed: with guards, without gaps


def expected_modules(spec: Spec, output: Path) -> Iterator[tuple[KernelSpec, DeviceSpec, Path]]:
    """The kernel, device and path of every module that a build of the spec writes below `output`.

    They come in the spec's order; each kernel's `default` module is its last.
    """
    for kernel in spec.kernels.values():
        for key in (*kernel.tables, FALLBACK_DEVICE):
            yield kernel, spec.devices.get(key, NO_DEVICE), output / kernel.name / f"{key}.py"


def read_trees(spec: Spec) -> dict[ModuleKey, Module]:
    """The modules that exist in the spec's output folder.

    Raises InputError for one that no build of this spec wrote.
    """
    return {
        (kernel.name, device.key): read_committed(kernel, device, path)
        for kernel, device, path in expected_modules(spec, spec.output)
        if try_path(path, Path.is_file)
    }


def read_committed(kernel: KernelSpec, device: DeviceSpec, path: Path) -> Module:
    """The module in a file. Raises InputError if a build of this spec prints no such text."""
    text = read_text(path)
    return Module(kernel, device, path, text, committed_tree(kernel, device, path, text))
