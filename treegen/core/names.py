"""Rules for names from outside that become Python names, file names or folder names."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from tuning_table.names import device_key as device_key
from tuning_table.names import problem_with_name as problem_with_name

IN_KERNEL = "in_kernel"
"""The folder in a kernel's package that holds device functions for its Triton code."""

_TAKEN = {"choose", "config", "default", "for_device", IN_KERNEL, "variant", "count", "index"}

_TAKEN_CAPITALS = re.compile("Config|VALUES|MODULES|BLANK[0-9]+_")


def problem_with_package_name(name: object, *, capitals: bool = False) -> str | None:
    """Return why `name` cannot be a name in a generated package; None if it can.

    capitals: it names a value, such as a parameter `BLOCK_M`, and neither a file nor a constant.
    """
    problem = problem_with_name(name)
    if problem is None and not re.fullmatch(r"[a-z][a-z0-9_]*", str(name).lower() if capitals else str(name)):
        return f"must begin with a letter{'' if capitals else ' and have no capitals'}"
    if problem is None and _TAKEN_CAPITALS.fullmatch(str(name)):
        return "is a name that the generated package uses itself"
    if problem is None and name in _TAKEN:
        return "is a name that the generated package uses itself"
    return problem


def problem_with_output(folder: Path) -> str | None:
    """Return why generated packages may not lie in `folder`; None if they may."""
    if ".git" in folder.parts:
        return "lies in git's own folder"
    if not folder.name.isidentifier() or keyword.iskeyword(folder.name):
        return "must end in a name that Python can import, such as generated"
    return None
