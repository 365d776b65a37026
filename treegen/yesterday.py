"""Yesterday's trees: those that the modules in the output folder were printed from."""

from __future__ import annotations

from pathlib import Path

from treegen.errors import one_line, reason
from treegen.readback import UnreadableModule, read_module
from treegen.spec import DeviceSpec, KernelSpec
from treegen.tree import Tree


def yesterdays_tree(output: Path, kernel: KernelSpec, device: DeviceSpec) -> Tree | str | None:
    """The tree of a device's module, with its guards; a line that says why it cannot be read; None if there
    is no module."""
    path = output / kernel.name / f"{device.key}.py"
    try:
        text = path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return one_line(f"{path}: {reason(error)}")
    try:
        return read_module(text, kernel, path, device.limits)
    except UnreadableModule as error:
        return str(error)
