"""Find and read other tools' files, one measurement a config and shape. Every failure is one InputError."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from treegen.core.errors import InputError, shown
from treegen.core.files import read_text, try_path
from treegen.core.table import Cells

Value: TypeAlias = "int | float | str | None"
"""A feature's or parameter's value as the source has it. A table gets an integer for it."""

UNITS_TO_US = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
NO_TIME = 1.0
"""Stands for the time of a winner of which the source has none; no tree depends on it."""
NO_TIMES = "unknown: the source names winners without their times, so each cell is 1"


@dataclass(frozen=True)
class Measurement:
    """The time of one config in one shape."""

    shape: Mapping[str, Value]  # by feature
    config: Mapping[str, Value]  # by parameter, booleans as such; without those that it does not set
    microseconds: float  # inf: the config failed
    variant: str | None = None


@dataclass(frozen=True)
class Measurements:
    """All measurements of one kernel on one device."""

    source: Path
    kernel: str
    device: str  # as the driver reports it, where the source knows that
    rows: tuple[Measurement, ...]
    origin: Mapping[str, Any]  # further facts of the source
    cells: Cells = Cells.WINNERS
    timing: str | Mapping[str, Any] = NO_TIMES
    notes: str = "Only winners: the other configs' times were not kept."  # what the source does not know
    device_key: str | None = None  # of the table's folder; None follows from the device
    hardware: Mapping[str, str | int] = field(default_factory=dict)  # arch, multiprocessors
    triton: str = ""  # the version whose winners these are, where a source keeps several
    lookup: Mapping[str, str] = field(default_factory=dict)  # by feature, the source's rule between its keys
    left_out: tuple[str, ...] = ()  # what is damaged in the source, in words
    files: int = 1  # that hold the measurements


@dataclass(frozen=True)
class ImportOptions:
    """What the user says about a source that does not say it itself."""

    kernel: str | None = None
    device: str | None = None
    features: tuple[str, ...] = ()  # names
    parameters: tuple[str, ...] = ()  # names
    time: str | None = None  # the column of times
    unit: str | None = None
    leave_out: tuple[str, ...] = ()  # columns
    # Selects among what a source holds.
    gpu: str | None = None
    triton: str | None = None
    dtype: str | None = None

    def needed_device(self, source: Path, tool: str) -> str:
        if self.device is None:
            what = f"{tool} does not name the GPU; name it as its driver does"
            raise InputError(source, f"{what}, with --device 'NVIDIA H100 80GB HBM3'")
        return self.device


_INTEGERS = re.compile(r"(BLOCK|GROUP|SPLIT|NUM|num|tile)_\w+|kpack|waves_per_eu|matrix_instr_nonkdim")
_NAMED: dict[str, Value] = {"True": True, "true": True, "False": False, "false": False}
_NAMED |= {"None": None, "null": None}
_DEEPEST = 16  # lists and mappings in each other
_LONGEST = 1e15  # in any unit


def files_of(source: Path, pattern: str, tool: str) -> list[Path]:
    """`source` itself if it is a file, else all files below it whose names match the glob pattern."""
    if not try_path(source, Path.exists):
        raise InputError(source, "no such file or folder")
    if not source.is_dir():
        return [source]
    found = try_path(source, lambda folder: sorted(path for path in folder.rglob(pattern) if path.is_file()))
    if not found:
        raise InputError(source, f"holds no file of {tool} ({pattern})")
    return found


def read_json(path: Path, tool: str, *, infinite: bool = False, text: str | None = None) -> dict[str, Any]:
    """The object that a JSON file holds, without repeated keys.

    infinite: whether `Infinity` is a number, as Python's own `json` writes it. text: in place of the file's.
    """

    def number(text: str) -> float:
        if not math.isfinite(value := float(text)) and not (infinite and text == "Infinity"):
            raise ValueError(f"{shown(text)} is not a number")
        return value

    text, pairs = read_text(path) if text is None else text, _without_repetition
    try:
        content = json.loads(text, object_pairs_hook=pairs, parse_constant=number, parse_float=number)
        if isinstance(content, dict):
            check_nesting(content)
            return content
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"not valid JSON: {error}") from None
    raise InputError(path, f"is no file of {tool}: it must hold a JSON object")


def read_csv(path: Path, needed: tuple[str, ...] = (), *, ragged: bool = False) -> list[Mapping[str, str]]:
    """The rows of a CSV file by column; messages count its header as line 1.

    ragged: whether a row may lack its last cells, which are empty then.
    """
    lines = io.StringIO(read_text(path), newline="")
    try:
        header, *rows = [row for row in csv.reader(lines, strict=True) if row]
    except (csv.Error, ValueError) as error:
        what = "is empty" if isinstance(error, ValueError) else f"is not valid CSV: {error}"
        raise InputError(path, what) from None
    header = [name.strip() for name in header]
    if lacking := [name for name in needed if name not in header]:
        what = f"has no column {shown(lacking[0])}, which is needed; it has {', '.join(header)}"
        raise InputError(path, what)
    if len(set(header)) < len(header):
        raise InputError(path, "has two columns of one name")
    if not rows:
        raise InputError(path, "holds no row below its header")
    for line, row in enumerate(rows, 2):
        row += [""] * (len(header) - len(row) if ragged else 0)
        if len(row) != len(header):
            raise InputError(path, f"has {len(row)} cells, but the header has {len(header)}", line=line)
    return [dict(zip(header, (cell.strip() for cell in row), strict=True)) for row in rows]


def value_of(text: str) -> Value:
    """The value of a text: an integer, a boolean, None, a fraction, or the text itself."""
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?[0-9]+\.[0-9]*", text) else _NAMED.get(text, text)


def flattened(values: Mapping[str, Any]) -> dict[str, Value]:
    """JSON values as plain ones: the items of a list `a` become `a_0`, `a_1`, ..."""
    result: dict[str, Value] = {}
    for name, value in values.items():
        parts = dict(enumerate(value)) if isinstance(value, list) else value
        if isinstance(parts, dict):
            result |= flattened({f"{name}_{key}": part for key, part in parts.items()})
        else:
            result[name] = value
    return result


def config_of(path: Path, key: str, config: object) -> dict[str, Value]:
    """The parameters of an entry. Raises InputError for a text where a launch needs an integer."""
    if not isinstance(config, dict) or not config:
        raise InputError(path, f"maps {shown(key)} to {shown(config)}, which is no config")
    found = flattened(config)
    for name, value in found.items():
        if type(value) is not int and _INTEGERS.fullmatch(name):
            raise InputError(path, f"entry {shown(key)}: {name} is {shown(value)}, not an integer")
    return found


def check_nesting(content: dict[str, Any] | list[Any], most: int = _DEEPEST) -> None:
    """Raise ValueError for lists and mappings that are nested more than `most` deep."""
    if most < 0:
        raise ValueError(f"it is nested more than {_DEEPEST} deep")
    for item in content.values() if isinstance(content, dict) else content:
        if isinstance(item, dict | list):
            check_nesting(item, most - 1)


def microseconds(path: Path, time: float, unit: str, line: int | None = None) -> float:
    """A time in microseconds; infinity stands for a failure. Raises InputError for other huge numbers."""
    if isinstance(time, bool) or (time != math.inf and not abs(time) < _LONGEST):
        raise InputError(path, f"has the time {shown(time)} {unit}", line=line)
    return float(time) * UNITS_TO_US[unit]


def time_of(path: Path, text: str, unit: str, line: int) -> float:
    """The time that a cell of a CSV file holds, in microseconds. Raises InputError."""
    try:
        time = float(text)
    except ValueError:
        raise InputError(path, f"has the time {shown(text)}, which is no number", line=line) from None
    return microseconds(path, time, unit, line)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice = next(key for key, _ in pairs if [k for k, _ in pairs].count(key) > 1)
        raise ValueError(f"key {shown(twice)} appears twice")
    return mapping
