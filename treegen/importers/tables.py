"""Make tables of measurements and write them, as `treegen import` does."""

from __future__ import annotations

import math
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import EllipsisType
from typing import Any, TypeGuard

from treegen.core.errors import InputError, reason, shown
from treegen.core.files import device_key, problem_with_name, try_path
from treegen.core.table import Cells, Table
from treegen.importers.sources import ImportOptions, Measurement, Measurements, Value
from treegen.read.problem import read_table
from treegen.write.files import check_replaceable, write_files
from tuning_table.names import device_keys, is_id, is_word, kernel_name, listed, numbered, word_for
from tuning_table.table import FORMAT, RUN, SCENARIOS, TIMES
from tuning_table.writer import table_texts

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


def table_of(found: Measurements, format_name: str, credit: Mapping[str, str]) -> ImportedTable:
    """The table of some measurements; `credit` goes into its origin.

    Raises InputError for values that no integers can stand for, and for a table that a reader would refuse.
    """
    shapes = _features(found)
    if not shapes.integers:
        raise InputError(found.source, "has no feature that is an integer or varies, to tell scenarios apart")
    configs = _parameters(found)
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
    short = device_key(found.device)
    key = found.device_key or short
    origin = {
        **credit,
        **found.origin,
        **({"triton": found.triton} if found.triton else {}),
        **({"files": found.files} if found.files > 1 else {}),
        "same_in_every_scenario": dict(shapes.fixed),
        **({"none_is_0": shapes.none} if shapes.none else {}),
        **({"booleans": shapes.booleans} if shapes.booleans else {}),
    }
    run = {
        "format": FORMAT,
        "kernel": found.kernel,
        "device": {"name": found.device, **({} if key == short else {"key": key}), **found.hardware},
        "cells": found.cells.value,
        "timing": found.timing,
        "origin": origin,
        "features": list(shapes.integers),
        **({"values": {name: listed(known) for name, known in words.items()}} if words else {}),
        **({"lookup": lookup} if lookup else {}),
        "configs": list(entries.values()),
    }
    notes = f"{_MARK}{format_name}`, not measured by this project.\n{found.notes}"
    files = table_texts(run, scenarios, times, notes)
    return ImportedTable(found.source, key, files, found.left_out, _checked(found, files))


def _parameters(found: Measurements) -> _Columns:
    """Integers stand for themselves; booleans, texts, None and an absent value have words."""
    rows = [row.config for row in found.rows]
    integers: dict[str, tuple[int, ...]] = {}
    words: dict[str, Mapping[int, str]] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
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


def _features(found: Measurements) -> _Columns:
    """Integers for all values: themselves, 0 for a missing one, or their words' places in the alphabet."""
    rows = [row.shape for row in found.rows]
    integers: dict[str, tuple[int, ...]] = {}
    words: dict[str, Mapping[int, str]] = {}
    fixed: dict[str, str] = {}
    none: list[str] = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name) for row in rows]
        present = [value for value in values if isinstance(value, int)]
        # A word that is the same everywhere is a column, as the tables of other GPUs may differ.
        is_column = isinstance(values[0], str) and is_word(values[0]) and problem_with_name(name) is None
        if len(present) < len(values) and len(set(map(str, values))) == 1 and not is_column:
            fixed[name] = str(values[0])
            continue
        texts = [value for value in values if isinstance(value, str | float)]
        if present and texts:
            what = f"varies but is not an integer everywhere: {shown(present[0])} and {shown(texts[0])}"
            raise InputError(found.source, f"feature {shown(name)} {what}")
        if not texts and (len(present) == len(values) or 0 not in present):
            integers[name] = tuple(int(value) if isinstance(value, int) else 0 for value in values)
            none += [] if len(present) == len(values) else [name]
            continue
        words[name] = numbered(dict.fromkeys(_word(value) for value in sorted(set(values), key=_order)))
        numbers = {word: number for number, word in words[name].items()}
        integers[name] = tuple(numbers[_word(value)] for value in values)
    booleans = [name for name in integers if all(isinstance(row.get(name), bool) for row in rows)]
    return _Columns(integers, words, fixed, none, booleans)


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
    several = len({row.variant for row in found.rows}) > 1
    keys: list[tuple[Any, ...]] = [
        ((row.variant or "") if several else "", *(configs.integers[name][place] for name in varying))
        for place, row in enumerate(found.rows)
    ]
    in_order = sorted(set(keys))
    names = {}
    for variant, *values in in_order:
        parts = [f"{name}={value}" for name, value in zip(varying, values, strict=True)]
        names[variant, *values] = "-".join([*([variant] if variant else []), *parts]) or "the-only"
    if not all(is_id(name) for name in names.values()):
        names = {key: f"c{place:04}" for place, key in enumerate(in_order, 1)}
    entries: dict[str, dict[str, int | str]] = {}
    for key in in_order:
        first = keys.index(key)
        variant = found.rows[first].variant
        parameters = {name: values[first] for name, values in configs.integers.items()}
        of_variant = {} if variant is None else {"variant": variant}
        entries[names[key]] = {"id": names[key], **of_variant, **parameters}
    return [names[key] for key in keys], entries


def _rows(found: Measurements, scenario: str, repeats: Sequence[Sequence[float]]) -> Iterable[list[object]]:
    """The rows of one scenario: first each config's first time, then each one's second.

    A row in which every config failed is left out, as no tree could choose from it.
    """
    places = range(max(map(len, repeats)))
    rows = [[cells[place] if place < len(cells) else None for cells in repeats] for place in places]
    if found.cells is Cells.WINNERS:  # a row holds one winner
        alone = ((row, column) for row in rows for column, time in enumerate(row) if time is not None)
        rows = [[time if c == column else None for c, time in enumerate(row)] for row, column in alone]
    else:
        rows = [row for row in rows if any(time is not None and time < math.inf for time in row)]
    for number, row in enumerate(rows, 1):
        times = ("" if time is None else f"{time:.4f}".rstrip("0").rstrip(".") for time in row)
        yield [scenario, number, *times]


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
    _refuse_mixed(group)
    rows = tuple(replace(row, shape={**missing, **row.shape}) for part in group for row in part.rows)
    first = group[0].origin
    origin = {key: value for key, value in first.items() if all(p.origin.get(key) == value for p in group)}
    left_out = tuple(dict.fromkeys(text for part in group for text in part.left_out))
    files = len({part.source for part in group})
    return replace(group[0], rows=rows, origin=origin, left_out=left_out, files=files)


def _refuse_mixed(group: Sequence[Measurements]) -> None:
    """Raise InputError for a file that has a text where another has an integer, or another's whole layer."""
    found: dict[tuple[str, bool], Path] = {}
    layers: dict[tuple[tuple[str, Value], ...], Path] = {}
    for part in group:
        for row in part.rows if "nearest" in part.lookup.values() else ():
            layer = tuple((name, value) for name, value in row.shape.items() if name not in part.lookup)
            if (other := layers.setdefault(layer, part.source)) != part.source:
                raise InputError(part.source, f"is of the same layer as {other}; remove one of them")
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

    source: Path
    device: str  # its key
    files: Mapping[str, str]  # texts by file name
    left_out: Sequence[str]  # what is damaged in the source, in words
    table: Table  # as a build will read it


def write_tables(
    tables: Sequence[ImportedTable], tuning_data: Path, *, replace: bool
) -> list[tuple[Path, ImportedTable]]:
    """Write all tables to their folders, or none. Returns each folder with its table.

    Raises:
        InputError: two tables have one folder; or a folder holds another table, and `replace` is false or no
            import wrote it. Nothing is written then.
    """
    folders: dict[Path, ImportedTable] = {}
    for table in tables:
        folder = tuning_data / table.table.kernel / table.device
        if folder in folders:
            what = f"gives {folder}, as {folders[folder].source} does; import them one at a time"
            raise InputError(table.source, what)
        if try_path(folder, Path.exists) and not _holds(folder, table):
            if not replace:
                raise InputError(folder, "already holds another table; pass --replace to overwrite it")
            _check_imported(folder)
        folders[folder] = table
    places = [(f"{table.table.kernel}/{table.device}", table.files) for table in tables]
    write_files(tuning_data, {f"{to}/{name}": text for to, files in places for name, text in files.items()})
    return list(folders.items())


def _check_imported(folder: Path) -> None:
    """Refuse to replace what an import did not write, such as a table that was measured."""
    if any((folder / name).exists() for name in (SCENARIOS, TIMES)) and not (folder / RUN).exists():
        raise InputError(folder, f"holds tables' files without {RUN}; remove them, or write elsewhere")
    check_replaceable(folder / RUN, "treegen import", _MARK.encode())


def _checked(found: Measurements, files: Mapping[str, str]) -> Table:
    """The table, if it passes the checks that every table must pass."""
    if (problem := problem_with_name(found.kernel)) is not None:
        raise InputError(found.source, f"the kernel's name {shown(found.kernel)} {problem}")
    try:
        with tempfile.TemporaryDirectory() as name:
            for file, text in files.items():
                (Path(name) / file).write_bytes(text.encode())
            try:
                return read_table(Path(name))
            except InputError as error:
                what = str(error).removeprefix(f"{name}/")
                raise InputError(found.source, f"gives a table that treegen refuses: {what}") from None
    except OSError as error:
        raise InputError("temporary files", f"cannot be written: {reason(error)}") from None


def _holds(folder: Path, table: ImportedTable) -> bool:
    paths = [(folder / name, text) for name, text in table.files.items()]
    return all(path.is_file() and path.read_bytes() == text.encode() for path, text in paths)
