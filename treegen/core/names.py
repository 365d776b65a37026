"""Which words from outside may become names, file names and folder names."""

from __future__ import annotations

import re

from tuning_table.names import problem_with_name as problem_with_name

IN_KERNEL = "in_kernel"
"""The folder in a kernel's package for what its Triton code chooses itself."""

_TAKEN = {"choose", "config", "default", "for_device", IN_KERNEL, "variant", "count", "index"}
_VENDORS = {"nvidia": "nvidia", "amd": "amd", "intel": "intel"}
_NOISE = {"instinct", "geforce", "radeon", "tesla", "graphics", "gpu"}


def problem_with_own_name(name: object) -> str | None:
    """Why `name` cannot be a name of a generated package, next to those that the package uses itself."""
    problem = problem_with_name(name)
    if problem is None and not re.fullmatch(r"[a-z][a-z0-9_]*", str(name)):
        return "must begin with a letter and have no capitals"
    if problem is None and name in _TAKEN:
        return "is a name that the generated package uses itself"
    return problem


def device_key(device_name: str) -> str:
    """The key of a GPU from the name its driver reports: vendor and model.

    >>> device_key("NVIDIA H100 80GB HBM3"), device_key("AMD Instinct MI300X")
    ('nvidia_h100', 'amd_mi300x')
    """
    words = [word for word in re.split(r"[^a-z0-9]+", device_name.lower()) if word]
    vendor = next((_VENDORS[word] for word in words if word in _VENDORS), None)
    rest = [word for word in words if word not in _VENDORS and word not in _NOISE]
    numbered = next((i for i, word in enumerate(rest) if re.search(r"[0-9]", word)), None)
    if vendor is None or numbered is None:
        return "_".join(words)[:64] or "unknown"
    return "_".join([vendor, *rest[: numbered + 1]])[:64]
