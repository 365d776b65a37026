"""Make tables of measurements and write them, as `treegen import` does."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import EllipsisType
from typing import TypeGuard

from treegen.core.errors import InputError, reason, shown
from treegen.core.files import device_key, problem_with_name, try_path
from treegen.core.table import Cells
from treegen.importers.sources import ImportOptions, Measurement, Measurements, Value
from treegen.read.problem import read_table
from treegen.write.files import check_replaceable, write_files
from tuning_table.names import device_keys, is_id, is_word, kernel_name, listed, numbered, word_for
from tuning_table.table import FORMAT, RUN, SCENARIOS, TIMES
from tuning_table.writer import table_texts

_SHORTEST_US, _LONGEST_US = 1e-3, 1e12
_UNSET = ("maxnreg", "ir_override", "pre_hook")  # arguments of triton.Config whose None is their default
_MARK = "Imported by `treegen import "
"""Begins the comment of every imported table's run.yaml."""


@dataclass(frozen=True)
class _Columns:
    """Values as the integers of a table."""

    integers: Mapping[str, tuple[int, ...]]  # by name, one per row
    words: Mapping[str, Mapping[int, str]]  # what integers of a name stand for
    fixed: Mapping[str, str] = field(default_factory=dict)  # no integers and the same in every row
    none: Sequence[str] = ()  # names whose 0 stands for a missing value
    booleans: Sequence[str] = ()  # names of which 0 and 1 stand for false and true


def table_of(found: Measurements, credit: Mapping[str, str] | None = None) -> ImportedTable:
    """The table of some measurements; `credit` goes into its origin. Raises InputError."""
    if problem_with_name(found.kernel) is not None:
        raise InputError(
            found.source, f"the kernel's name {shown(found.kernel)} {problem_with_name(found.kernel)}"
        )
    shapes = _integers(found, "feature", [row.shape for row in found.rows])
    if not shapes.integers:
        raise InputError(found.source, "has no feature that is an integer or varies, to tell scenarios apart")
    configs = _parameters(found, [row.config for row in found.rows])
    points = list(zip(*shapes.integers.values(), strict=True))
    ids, entries = _configs(found, configs)
    columns = {config: place for place, config in enumerate(entries)}
    cells: dict[tuple[int, ...], list[list[float]]] = {}
    for row, point, config in zip(found.rows, points, ids, strict=True):
        repeats = cells.setdefault(point, [[] for _ in columns])
        repeats[columns[config]].append(row.microseconds)
    scenarios, times = [], []
    for place, (point, repeats) in enumerate(cells.items(), 1):
        rows = list(_rows(found, f"s{place:03}", repeats))
        scenarios += [[f"s{place:03}", *point]] if rows else []
        times += rows
    if not times:
        raise InputError(found.source, "no config has a time in any shape")
    words = {**shapes.words, **configs.words}
    lookup = {name: rule for name, rule in found.lookup.items() if name in shapes.integers}
    key = found.device_key or device_key(found.device)
    run = {
        "format": FORMAT,
        "kernel": found.kernel,
        "device": {
            "name": found.device,
            **({} if key == device_key(found.device) else {"key": key}),
            **found.hardware,
        },
        "cells": found.cells.value,
        "timing": found.timing,
        "origin": {
            **(credit or {}),
            **found.origin,
            **({"triton": found.triton} if found.triton else {}),
            **({"files": found.files} if found.files > 1 else {}),
            "same_in_every_scenario": dict(shapes.fixed),
            **({"none_is_0": shapes.none} if shapes.none else {}),
            **({"booleans": shapes.booleans} if shapes.booleans else {}),
        },
        "features": list(shapes.integers),
        **({"values": {name: listed(known) for name, known in words.items()}} if words else {}),
        **({"lookup": lookup} if lookup else {}),
        "configs": list(entries.values()),
    }
    notes = f"{_MARK}{found.format}`, not measured by this project.\n{found.notes}"
    files = table_texts(run, scenarios, times, notes)
    counts = len(scenarios), len(entries)
    return ImportedTable(found.kernel, key, found.source, *counts, found.cells, words, files, found.left_out)


def _parameters(found: Measurements, rows: Sequence[Mapping[str, Value]]) -> _Columns:
    """Integers stand for themselves; booleans, texts, None and an absent value have words."""
    integers: dict[str, tuple[int, ...]] = {}
    words: dict[str, Mapping[int, str]] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        if problem_with_name(name) is not None:
            raise InputError(found.source, f"parameter {shown(name)} {problem_with_name(name)}")
        values: list[Value | EllipsisType] = [row.get(name, ...) for row in rows]
        if name in _UNSET:
            values = [... if value is None else value for value in values]
        if set(values) == {...}:
            continue
        plain = {value for value in values if _is_plain(value)}
        others = {value for value in values if not _is_plain(value)}
        if beside := [value for value in others if plain and isinstance(value, bool | float | str)]:
            what = f"is {shown(beside[0])} in one place and the integer {min(plain)} in another"
            raise InputError(found.source, f"parameter {shown(name)} {what}")
        both = [value for value in (False, True) if any(isinstance(other, bool) for other in others)]
        try:
            known = [word_for(value) for value in (*both, *sorted(others - set(both), key=_order))]
        except ValueError as error:
            raise InputError(found.source, f"parameter {shown(name)}: {error}") from None
        if known:
            words[name] = numbered(known, plain)
        numbers = {word: number for number, word in words.get(name, {}).items()}
        integers[name] = tuple(v if _is_plain(v) else numbers[word_for(v)] for v in values)
    return _Columns(integers, words)


def _is_plain(value: object) -> TypeGuard[int]:
    """Whether a parameter's value stands for itself in a table."""
    return type(value) is int and value >= 0


def _integers(found: Measurements, kind: str, rows: Sequence[Mapping[str, Value]]) -> _Columns:
    """Integers for all values: themselves, 0 for a missing one, or their words' places in the alphabet."""
    integers: dict[str, tuple[int, ...]] = {}
    words: dict[str, Mapping[int, str]] = {}
    fixed: dict[str, str] = {}
    none: list[str] = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        present = [value for value in values if isinstance(value, int)]
        one = len(set(map(str, values))) == 1
        if len(present) < len(values) and one and not _names_well(name, values[0]):
            fixed[name] = str(values[0])
            continue
        if problem_with_name(name) is not None:
            raise InputError(found.source, f"{kind} {shown(name)} {problem_with_name(name)}")
        texts = [value for value in values if isinstance(value, str | float)]
        if present and texts:
            what = f"varies but is not an integer everywhere: {shown(present[0])} and {shown(texts[0])}"
            raise InputError(found.source, f"{kind} {shown(name)} {what}")
        if not texts and (len(present) == len(values) or 0 not in present):
            integers[name] = tuple(int(value) if isinstance(value, int) else 0 for value in values)
            none += [] if len(present) == len(values) else [name]
            continue
        words[name] = numbered(dict.fromkeys(_word(value) for value in sorted(set(values), key=_order)))
        for word in words[name].values():
            if not is_word(word):
                what = f"{kind} {name} has the value {shown(word)}, which cannot be a word of a table"
                raise InputError(found.source, what)
        numbers = {word: number for number, word in words[name].items()}
        integers[name] = tuple(numbers[_word(value)] for value in values)
    booleans = [name for name in integers if all(isinstance(row.get(name), bool) for row in rows)]
    return _Columns(integers, words, fixed, none, booleans)


def _names_well(name: str, value: Value) -> bool:
    """Whether a value that is the same everywhere can be a column, as the tables of other GPUs may differ."""
    return isinstance(value, str) and bool(is_word(value)) and problem_with_name(name) is None


def _word(value: Value) -> str:
    return "none" if value is None else str(value)


def _order(value: object) -> tuple[bool, float, str]:
    """Numbers by size, and behind them texts by the alphabet."""
    number = value if isinstance(value, int | float) else 0.0
    return isinstance(value, str), number, str(value)


def _configs(found: Measurements, configs: _Columns) -> tuple[list[str], dict[str, dict[str, int | str]]]:
    """The id of each row's config, and the entry of each id in run.yaml, in the order of the table's columns.

    The order of columns does not depend on where a config wins, so that a new winner moves no other column.
    """
    varying = [name for name, values in configs.integers.items() if len(set(values)) > 1]
    variants = [row.variant for row in found.rows]
    several = len(set(variants)) > 1
    keys = [
        (variants[row] if several else None, *(configs.integers[name][row] for name in varying))
        for row in range(len(found.rows))
    ]
    in_order = sorted(set(keys), key=lambda key: (str(key[0]), key[1:]))
    names = {key: _id(key, varying) for key in in_order}
    if not all(is_id(name) for name in names.values()):
        names = {key: f"c{place:04}" for place, key in enumerate(in_order, 1)}
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    entries: dict[str, dict[str, int | str]] = {}
    for key in in_order:
        variant, row = variants[first[key]], first[key]
        parameters = {name: values[row] for name, values in configs.integers.items()}
        entries[names[key]] = {
            "id": names[key],
            **({} if variant is None else {"variant": variant}),
            **parameters,
        }
    return [names[key] for key in keys], entries


def _id(key: Sequence[int | str | None], varying: Iterable[str]) -> str:
    variant, *values = key
    parts = [f"{name}={value}" for name, value in zip(varying, values, strict=True)]
    return "-".join([*([] if variant is None else [str(variant)]), *parts]) or "the-only"


def _rows(found: Measurements, scenario: str, repeats: Sequence[Sequence[float]]) -> Iterable[list[object]]:
    """The rows of one scenario: first each config's first time, then each one's second.

    A row in which every config failed is left out, as no tree could choose from it.
    """
    number = 0
    for place in range(max(map(len, repeats))):
        times = [cells[place] if place < len(cells) else None for cells in repeats]
        measured = [time for time in times if time is not None and time < math.inf]
        if found.cells is Cells.WINNERS:
            for column, time in enumerate(times):
                if time is not None:
                    number += 1
                    row = ["" for _ in times]
                    row[column] = _time(found, scenario, time)
                    yield [scenario, number, *row]
        elif measured:
            number += 1
            yield [
                scenario,
                number,
                *("" if time is None else _time(found, scenario, time) for time in times),
            ]


def _time(found: Measurements, scenario: str, microseconds: float) -> str:
    if microseconds == math.inf:
        return "inf"
    if not _SHORTEST_US <= microseconds < _LONGEST_US:
        raise InputError(found.source, f"scenario {scenario} has the time {microseconds} microseconds")
    return f"{microseconds:.4f}".rstrip("0").rstrip(".")


def merged(parts: Iterable[Measurements]) -> list[Measurements]:
    """One `Measurements` a kernel, device and version of Triton: a source can hold one shape a file."""
    groups: dict[tuple[str, str, str], list[Measurements]] = {}
    missing: dict[str, dict[str, Value]] = {}  # by kernel and feature, what stands for one that a file lacks
    for part in parts:
        groups.setdefault((part.kernel, part.device, part.triton), []).append(part)
        for name, value in ((name, value) for row in part.rows for name, value in row.shape.items()):
            if missing.setdefault(part.kernel, {}).get(name) is None:
                missing[part.kernel][name] = value and ("none" if isinstance(value, str) else 0)
    return [_joined(group, missing[group[0].kernel]) for group in groups.values()]


def _joined(group: Sequence[Measurements], missing: Mapping[str, Value]) -> Measurements:
    first = group[0]
    rows = tuple(
        row if len(row.shape) == len(missing) else replace(row, shape={**missing, **row.shape})
        for part in group
        for row in part.rows
    )
    _refuse_mixed(group)
    origin = {
        key: value for key, value in first.origin.items() if all(p.origin.get(key) == value for p in group)
    }
    left_out = tuple(dict.fromkeys(text for part in group for text in part.left_out))
    files = len({part.source for part in group})
    return replace(first, rows=rows, origin=origin, left_out=left_out, files=files)


def _refuse_mixed(group: Sequence[Measurements]) -> None:
    """Raise InputError for a file that has a text where another one has an integer."""
    found: dict[tuple[str, bool], Path] = {}
    for part in group:
        for name, value in ((name, value) for row in part.rows for name, value in row.config.items()):
            if isinstance(value, str) or _is_plain(value):
                found[name, isinstance(value, str)] = part.source
    for (name, is_text), source in found.items():
        if is_text and found.get((name, False), source) != source:
            what = f"has a text for {shown(name)}, which is an integer in {found[name, False]}"
            raise InputError(source, what)


def selected(tables: Iterable[Measurements], options: ImportOptions) -> list[Measurements]:
    """The tables that the options select, each with a name of its own.

    The key of a GPU is longer where others share it, and a kernel's name has the version of Triton where a
    source keeps several. Raises InputError: nothing is selected, or `--device` would rename several GPUs.
    """
    wanted = options.kernel and kernel_name(options.kernel)
    left = [table for table in tables if wanted in (None, kernel_name(table.kernel))]
    keys = device_keys(table.device for table in left)
    selections: tuple[tuple[str, str | None, Callable[[Measurements, Measurement], str]], ...] = (
        ("--gpu", options.gpu, lambda table, row: table.device.replace(" ", "_")),
        ("--triton", options.triton, lambda table, row: table.triton),
        ("--dtype", options.dtype, lambda table, row: str(row.shape.get("dtype", ""))),
    )
    for option, value, of in selections:
        if value is not None:
            known = sorted({of(table, row) for table in left for row in table.rows} - {""})
            value = value.replace(" ", "_")
            own = [tuple(row for row in table.rows if of(table, row) == value) for table in left]
            left = [replace(table, rows=rows) for table, rows in zip(left, own, strict=True) if rows]
            if not left:
                raise InputError(option, f"{shown(value)} is none of {', '.join(known)}")
    gpus = dict.fromkeys(table.device for table in left)
    if options.device is not None and len(gpus) > 1:
        what = f"would be the name of {len(gpus)} GPUs; select one with --gpu: {', '.join(gpus)}"
        raise InputError("--device", what)
    versions = {table.kernel: {t.triton for t in left if t.kernel == table.kernel} for table in left}
    return [
        replace(
            table,
            kernel=table.kernel + (version_suffix(table.triton) if len(versions[table.kernel]) > 1 else ""),
            device=options.device or table.device,
            device_key=None if options.device else table.device_key or keys[table.device],
        )
        for table in left
    ]


def version_suffix(triton: str) -> str:
    """What tells kernels of several versions of Triton apart: `_triton_3_4_0`."""
    return f"_triton_{re.sub('[^0-9a-z]+', '_', triton.lower())}" if triton else ""


@dataclass(frozen=True)
class ImportedTable:
    """A table that is ready to be written to tuning_data/<kernel>/<device>/."""

    kernel: str
    device: str
    source: Path
    scenarios: int  # how many
    configs: int  # how many
    cells: Cells
    words: Mapping[str, Mapping[int, str]]  # what integers of features and parameters stand for
    files: Mapping[str, str]  # texts by file name
    left_out: Sequence[str] = ()  # what is damaged in the source, in words


def write_tables(
    tables: Sequence[ImportedTable], tuning_data: Path, *, replace: bool
) -> list[tuple[Path, ImportedTable]]:
    """Write all tables to their folders, or none. Returns each folder with its table.

    Raises:
        InputError: two tables have one folder; or a folder holds another table, and `replace` is false or no
            import wrote it; or a table is not valid. Nothing is written then.
    """
    folders: dict[Path, ImportedTable] = {}
    for table in tables:
        folder = tuning_data / table.kernel / table.device
        if folder in folders:
            raise InputError(
                table.source, f"gives {folder}, as {folders[folder].source} does; import them one at a time"
            )
        if try_path(folder, Path.exists) and not _holds(folder, table):
            if not replace:
                raise InputError(folder, "already holds another table; pass --replace to overwrite it")
            _check_imported(folder)
        _check_readable(table)
        folders[folder] = table
    texts = {
        f"{t.kernel}/{t.device}/{name}": text for t in folders.values() for name, text in t.files.items()
    }
    write_files(tuning_data, texts)
    return list(folders.items())


def _check_imported(folder: Path) -> None:
    """Refuse to replace what an import did not write, such as a table that was measured."""
    if any((folder / name).exists() for name in (SCENARIOS, TIMES)) and not (folder / RUN).exists():
        raise InputError(folder, f"holds tables' files without {RUN}; remove them, or write elsewhere")
    check_replaceable(folder / RUN, "treegen import", _MARK.encode())


def _check_readable(table: ImportedTable) -> None:
    """Refuse a table that fails the checks that every table must pass."""
    try:
        with tempfile.TemporaryDirectory() as name:
            for file, text in table.files.items():
                (Path(name) / file).write_bytes(text.encode())
            try:
                read_table(Path(name))
            except InputError as error:
                what = str(error).removeprefix(f"{name}/")
                raise InputError(table.source, f"gives a table that treegen refuses: {what}") from None
    except OSError as error:
        raise InputError("temporary files", f"cannot be written: {reason(error)}") from None


def _holds(folder: Path, table: ImportedTable) -> bool:
    files = {name: folder / name for name in table.files}
    return all(
        path.is_file() and path.read_bytes() == table.files[name].encode() for name, path in files.items()
    )
