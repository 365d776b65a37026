"""Rules for names from outside that become Python names, file names or folder names."""

from __future__ import annotations

import builtins
import keyword
import re

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_CONFIG_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.=-]{0,127}")
IN_KERNEL = "in_kernel"
"""The folder in a kernel's package that holds device functions for its Triton code."""

_TAKEN = {"choose", "config", "default", "for_device", IN_KERNEL, "variant", "count", "index"}
_VENDORS = {"nvidia": "nvidia", "amd": "amd", "intel": "intel"}
_NOISE = {"instinct", "geforce", "radeon", "tesla", "graphics", "gpu"}


def problem_with_name(name: object) -> str | None:
    """Why `name` cannot be an identifier; None if it can."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        return "is not a plain name (letters, digits and underscores, at most 64)"
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return "is a word of Python"
    if hasattr(builtins, name):
        return "is a builtin of Python"
    if name.startswith("__"):
        return "starts with two underscores"
    return None


def problem_with_package_name(name: object) -> str | None:
    """Why `name` cannot be a name in a generated package; None if it can."""
    problem = problem_with_name(name)
    if problem is None and not re.fullmatch(r"[a-z][a-z0-9_]*", str(name)):
        return "must begin with a letter and have no capitals"
    if problem is None and name in _TAKEN:
        return "is a name that the generated package uses itself"
    return problem


def is_config_id(text: str) -> bool:
    """Whether `text` can head a column of times.csv: it has no commas, quotes or blanks."""
    return _CONFIG_ID.fullmatch(text) is not None


def device_key(device_name: str) -> str:
    """The key of a GPU, vendor and model, from the name that its driver reports.

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
