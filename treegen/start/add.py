"""More tables for an existing spec: lines that are put into its text, so that its comments stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from treegen.core.errors import InputError
from treegen.core.files import read_text
from treegen.core.spec import Spec, is_model
from treegen.read.spec import read_spec
from treegen.start.gpu import Gpu, device_section
from treegen.start.spec_text import gpu_table, kernel_section, refuse_unbuildable, table_entry
from tuning_table.strict_yaml import parse

_INDENT = 2  # of the sections that are inserted


def text_with_tables(folders: Sequence[Path], spec: Path) -> str:
    """The text of the spec at `spec` with more tables, and with the devices and kernels that it lacks.

    Raises InputError: the spec or a table cannot be read; a device of a kernel has a table already; or a
    build would refuse the result.
    """
    text = given = read_text(spec)
    text += "" if text.endswith("\n") else "\n"
    tables = list(map(gpu_table, folders))
    for table in tables:
        read = read_spec(spec, text)
        key, kernels = _device_key(read, table.gpu), read.kernels
        kernel = kernels.get(table.kernel)
        kernel = kernel or next((k for k in kernels.values() if table.kernel in k.translations), None)
        if key not in read.devices:
            text = _inserted(spec, text, ("devices",), key, device_section(table.gpu))
        if kernel is None:
            lines = kernel_section(table.kernel, {key: table}, spec)
            text = _inserted(spec, text, ("kernels",), table.kernel, lines)
        elif key in kernel.tables:
            problem = f"is on {key}, of which {kernel.name} has a table in {spec}"
            raise InputError(table.folder, f"{problem}; to replace that one, name this folder in its place")
        else:
            entry = f"  {table_entry(key, table, spec)}"
            text = _inserted(spec, text, ("kernels", kernel.name, "tables"), key, [entry])
    refuse_unbuildable(text, spec, tables)
    if 0 < given.count("\n") == given.count("\r\n"):  # a file of Windows
        text = re.sub(r"(?<!\r)\n", "\r\n", text)
    return text


def _device_key(spec: Spec, gpu: Gpu) -> str:
    """The key of the spec's device that a GPU is, or of the one that it lacks."""
    names = ((len(name), device.key, name) for device in spec.devices.values() for name in device.names)
    fitting = [(length, key) for length, key, name in names if is_model(gpu.name, name)]
    return max(fitting)[1] if fitting else gpu.key


def _inserted(spec: Path, text: str, path: Sequence[str], key: str, lines: Sequence[str]) -> str:
    """The text with an entry at the end of the section at `path`; all else is as before.

    Raises InputError if the section is not written so that lines can be added.
    """
    _, lines_of = parse(spec, text)
    before, at = text.splitlines(keepends=True), lines_of[tuple(path)]
    head = before[at - 1]
    if len(lines) == 1 and (flow := re.fullmatch(r"(.*\{.*[^{\s])(\s*\}\s*(?:#.*)?)", head, re.DOTALL)):
        after = [*before[: at - 1], f"{flow[1]}, {lines[0].strip()}{flow[2]}", *before[at:]]
    else:
        section = len(head) - len(head.lstrip(" "))
        depths = [_depth(line) for line in before[at:]]  # None: blank or a comment
        inside = list(takewhile(lambda depth: depth is None or depth > section, depths))
        while inside and inside[-1] is None:
            inside.pop()
        shift = " " * (next((depth for depth in inside if depth), section + _INDENT) - _INDENT)
        end = at + len(inside)
        opened = re.sub(r":\s*\{\s*\}", ":", head)  # `tables: {}`
        added = [f"{shift}{line}\n" for line in lines]
        after = [*before[: at - 1], opened, *before[at:end], *added, *before[end:]]
    result = "".join(after)
    if not _adds_only(spec, text, result, path, key):
        what = f"is written so that nothing can be added to {'.'.join(path)}; add by hand: {' '.join(lines)}"
        raise InputError(spec, what)
    return result


def _depth(line: str) -> int | None:
    """How far a line is indented; None for a blank one and a comment."""
    return None if not line.strip() or line.lstrip().startswith("#") else len(line) - len(line.lstrip(" "))


def _adds_only(spec: Path, before: str, after: str, path: Sequence[str], key: str) -> bool:
    """Return whether two texts of a spec differ in nothing but one more entry of the section at `path`."""
    try:
        section = changed = parse(spec, after)[0]
    except InputError:
        return False
    for name in path:
        section = section.get(name, {})
    return section.pop(key, None) is not None and changed == parse(spec, before)[0]
