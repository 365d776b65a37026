"""Read the previous trees: those that the modules in the output folder were printed from."""

from __future__ import annotations

from pathlib import Path

from treegen.core.errors import InputError, one_line
from treegen.core.files import digest, read_bytes, try_path
from treegen.core.problem import Problem
from treegen.core.tree import Tree
from treegen.update.module_reader import UnreadableModule, read_module


def read_previous_tree(output: Path, problem: Problem, written: str | None = None) -> Tree | str | None:
    """The tree of a device's module, with its guards; None if there is no module.

    If no build wrote the module, a line that says why is returned instead. `written` is the SHA-256 of the
    module that the last build wrote, if known.
    """
    kernel, device = problem.kernel, problem.device
    path = output / kernel.name / f"{device.key}.py"
    try:
        if not try_path(path, Path.exists):
            return None
        text = read_bytes(path).decode()
        if written is not None and digest(text) != written:
            return one_line(f"{path}: is not what the last build wrote")
        return read_module(text, kernel, path, device.limits)
    except (InputError, UnreadableModule) as error:
        return str(error)
    except UnicodeDecodeError as error:
        return one_line(f"{path}: {error}")
