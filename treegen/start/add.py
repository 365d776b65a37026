"""More tables for an existing spec: lines that are put into its text, so that its comments stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from treegen.core.errors import InputError
from treegen.core.files import read_text
from treegen.core.spec import KernelSpec, Spec, is_model
from treegen.read.spec import read_spec
from treegen.read.yaml_file import load
from treegen.start.gpu import device_section
from treegen.start.spec_text import Found, find_table, kernel_section, refuse_unbuildable, table_entry

_INDENT = 2  # of the sections that are inserted


def text_with_tables(folders: Sequence[Path], spec: Path) -> str:
    """The text of the spec at `spec` with more tables, and with the devices and kernels that it lacks.

    Raises InputError: the spec or a table cannot be read; a device of a kernel has a table already; or a
    build would refuse the result.
    """
    text = read_text(spec)
    every = list(map(find_table, folders))
    for found in every:
        described = read_spec(spec, text)
        key = _device_key(described, found)
        kernel = _kernel_of(described, found)
        if key not in described.devices:
            text = _inserted(spec, text, ("devices",), key, device_section(found.gpu))
        if kernel is None:
            lines = kernel_section(found.kernel, {key: found}, spec)
            text = _inserted(spec, text, ("kernels",), found.kernel, lines)
        elif key in kernel.tables:
            raise InputError(found.folder, f"is on {key}, of which {kernel.name} has a table in {spec}")
        else:
            entry = f"  {table_entry(key, found, spec)}"
            text = _inserted(spec, text, ("kernels", kernel.name, "tables"), key, [entry])
    refuse_unbuildable(text, spec, every)
    return text


def _device_key(spec: Spec, found: Found) -> str:
    """The key of the spec's device that measured a table, or of the one that it lacks."""
    names = ((len(name), device.key, name) for device in spec.devices.values() for name in device.names)
    fitting = [(length, key) for length, key, name in names if is_model(found.gpu.name, name)]
    return max(fitting)[1] if fitting else found.gpu.key


def _kernel_of(spec: Spec, found: Found) -> KernelSpec | None:
    """The kernel whose table it is, by name or by the spec's translation."""
    if found.kernel in spec.kernels:
        return spec.kernels[found.kernel]
    return next((k for k in spec.kernels.values() if found.kernel in k.translations), None)


def _inserted(spec: Path, text: str, path: Sequence[str], key: str, lines: Sequence[str]) -> str:
    """The text with an entry at the end of the section at `path`; all else is as before.

    Raises InputError if the section is not written so that lines can be added.
    """
    outer = load(spec, text)
    for name in path[:-1]:
        outer = outer.section(name)
    before, at = text.splitlines(keepends=True), outer.line_of(path[-1])
    head = before[at - 1]
    if (one_line := re.fullmatch(r"(.*\{.*[^{\s])(\s*\}\s*(?:#.*)?)", head, re.DOTALL)) and len(lines) == 1:
        after = [*before[: at - 1], f"{one_line[1]}, {lines[0].strip()}{one_line[2]}", *before[at:]]
    else:
        end = at
        for number, line in enumerate(before[at:], at + 1):
            if _depth(line) <= _depth(head) and line.strip() and not line.lstrip().startswith("#"):
                break
            end = number if _depth(line) > _depth(head) and line.strip() else end
        inside = [line for line in before[at:end] if not line.lstrip().startswith("#") and line.strip()]
        shift = " " * ((_depth(inside[0]) if inside else _depth(head) + _INDENT) - _INDENT)
        line_end = "\r\n" if head.endswith("\r\n") else "\n"
        whole = [line if line.endswith("\n") else line + line_end for line in before[:end]]
        after = [*whole, *(f"{shift}{line}{line_end}" for line in lines), *before[end:]]
    result = "".join(after)
    if not _adds_only(spec, text, result, path, key):
        what = f"is written so that nothing can be added to {'.'.join(path)}; add by hand: {' '.join(lines)}"
        raise InputError(spec, what)
    return result


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _adds_only(spec: Path, before: str, after: str, path: Sequence[str], key: str) -> bool:
    """Return whether two texts of a spec differ in nothing but one more entry of the section at `path`."""
    try:
        section = changed = load(spec, after)
    except InputError:
        return False
    for name in path:
        section = section.get(name, {})
    return section.pop(key, None) is not None and changed == load(spec, before)
