"""Yesterday's trees: those that the modules in the output folder were printed from."""

from __future__ import annotations

from pathlib import Path

from treegen.errors import one_line, reason
from treegen.files import digest
from treegen.readback import UnreadableModule, read_module
from treegen.spec import DeviceSpec, KernelSpec
from treegen.tree import Tree


def yesterdays_tree(
    output: Path, kernel: KernelSpec, device: DeviceSpec, written: str | None = None
) -> Tree | str | None:
    """The tree of a device's module, with its guards; a line that says why it is none that a build wrote;
    None if there is no module. written: the SHA-256 of the module that the last build wrote, where known.
    """
    path = output / kernel.name / f"{device.key}.py"
    try:
        text = path.read_bytes().decode()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return one_line(f"{path}: {reason(error)}")
    if written is not None and digest(text) != written:
        return one_line(f"{path}: is not what the last build wrote")
    try:
        return read_module(text, kernel, path, device.limits)
    except UnreadableModule as error:
        return str(error)
