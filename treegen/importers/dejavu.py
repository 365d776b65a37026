"""Import triton-dejavu caches (https://github.com/IBM/triton-dejavu, storage layout of version 0.7).

A cache keeps, for every tuned key (scenario), the config that won and its time in milliseconds; the times
of all other configs, and which configs were tried, are gone. The result is therefore a table of winners:
one filled cell a row, the others empty.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treegen.core.errors import InputError, shown
from treegen.core.files import looked_at, read_text
from treegen.core.names import device_key, problem_with_name
from treegen.core.table import Cells
from treegen.importers import ImportedTable
from tuning_table.table import FORMAT
from tuning_table.writer import table_texts

_LAYOUT = (
    "dejavu_",
    "triton_",
    "",
    "gpu_",
    "",
    "autotune_config-",
    "code_version-",
    "tune_features-",
    "kernel_configs-",
)
_UNITS_TO_US = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}


@dataclass(frozen=True)
class _Circumstances:
    """What a cache's folders say about the run."""

    dejavu: str
    triton: str
    toolkit: str
    device_name: str
    code_version: str


def import_dejavu(source: Path, credit: Mapping[str, str] | None = None) -> list[ImportedTable]:
    """The tables of every cache.json at or below `source`; `credit` goes into their origin.

    Raises InputError when there is none, or when one is malformed.
    """
    if not looked_at(source, Path.exists):
        raise InputError(source, "no such file or folder")
    caches = (
        [source] if source.is_file() else looked_at(source, lambda folder: sorted(folder.rglob("cache.json")))
    )
    if not caches:
        raise InputError(source, "holds no triton-dejavu cache (cache.json)")
    return [_import_cache(path, credit or {}) for path in caches]


def _import_cache(path: Path, credit: Mapping[str, str]) -> ImportedTable:
    where = _circumstances(path)
    cache = _json(path)
    kernel = _kernel_name(path, cache)
    keys = [_key(path, text) for text in cache["cache"]]
    configs = [_config(path, text) for text in cache["cache"].values()]
    names, features, fixed_features = _columns(path, [str(name) for name in cache["keys"]], keys)
    ids, parameters, fixed_parameters = _distinct_configs(path, configs)
    times = [_microseconds(path, cache, key) for key in cache["cache"]]
    entries = [{"id": ids[i], **parameters[i]} for i in _first_positions(ids)]
    columns = {entry["id"]: position for position, entry in enumerate(entries)}
    scenarios = [[f"s{i + 1:03}", *row] for i, row in enumerate(features)]
    rows = []
    for i, time in enumerate(times):
        cells: list[object] = [""] * len(entries)
        cells[columns[ids[i]]] = f"{time:.4f}".rstrip("0").rstrip(".")
        rows.append([scenarios[i][0], 1, *cells])
    run = {
        "format": FORMAT,
        "kernel": kernel,
        "device": {"name": where.device_name},
        "cells": Cells.WINNERS.value,
        "timing": _timing(cache),
        "origin": {
            **credit,
            "tool": f"triton-dejavu {where.dejavu}",
            "signature": str(cache["signature"]),
            "triton": where.triton,
            "toolkit": where.toolkit,
            "code_version": where.code_version,
            "evaluated_configs": cache["evaluated_configs"],
            "tuning_seconds": round(cache["total_bench_time_s"]),
            "same_in_every_scenario": fixed_features,
            "same_in_every_config": fixed_parameters,
        },
        "features": names,
        "configs": entries,
    }
    notes = (
        "Imported by `treegen import dejavu`, not measured by this project.\n"
        "Only winners: the other configs' times were not kept."
    )
    return ImportedTable(
        kernel,
        device_key(where.device_name),
        path,
        len(rows),
        len(entries),
        table_texts(run, scenarios, rows, notes),
    )


def _circumstances(path: Path) -> _Circumstances:
    parts = path.resolve().parts[-11:-2]
    if len(parts) != len(_LAYOUT) or not all(
        p.startswith(start) for p, start in zip(parts, _LAYOUT, strict=True)
    ):
        raise InputError(
            path,
            "is not in triton-dejavu's folders (dejavu_V/triton_V/<toolkit>/gpu_<name>/<kernel>/...), "
            "which say what GPU it is from; keep them",
        )
    return _Circumstances(
        dejavu=parts[0].removeprefix("dejavu_"),
        triton=parts[1].removeprefix("triton_"),
        toolkit=parts[2].replace("_", " ", 1),
        device_name=parts[3].removeprefix("gpu_").replace("_", " "),
        code_version=parts[6].removeprefix("code_version-"),
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        cache = json.loads(
            read_text(path),
            object_pairs_hook=_without_repetition,
            parse_constant=_no_number,
            parse_float=_finite,
        )
    except (ValueError, RecursionError) as error:
        raise InputError(path, f"not valid JSON: {error}") from None
    kinds: dict[str, type | tuple[type, ...]] = {
        "signature": str,
        "keys": list,
        "cache": dict,
        "timings": dict,
        "timings_data": dict,
        "evaluated_configs": int,
        "total_bench_time_s": (int, float),
    }
    for name, kind in kinds.items():
        if not isinstance(cache, dict) or not isinstance(cache.get(name), kind):
            raise InputError(path, f"lacks a proper '{name}': is it a triton-dejavu cache?")
    if not cache["cache"]:
        raise InputError(path, "holds no scenario")
    return dict(cache)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, _ in pairs if [k for k, _ in pairs].count(key) > 1)
        raise ValueError(f"key {shown(twice)} appears twice")
    return found


def _finite(text: str) -> float:
    return number if math.isfinite(number := float(text)) else _no_number(shown(text))


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _kernel_name(path: Path, cache: Mapping[str, Any]) -> str:
    match = re.fullmatch(r"JITFunction\(.*:(\w+)\)", cache["signature"])
    name = match[1] if match else ""
    if problem_with_name(name) is not None:
        raise InputError(path, f"signature {shown(cache['signature'])} names no kernel")
    return name


def _key(path: Path, text: str) -> tuple[str, ...]:
    """A scenario: dejavu writes the tuple of key values (and argument dtypes) as Python text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of `1if x else y` on standard error
            values = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        values = None
    if not isinstance(values, tuple) or not all(isinstance(value, str) for value in values):
        raise InputError(path, f"scenario {shown(text)} is not a tuple of texts")
    return values


def _config(path: Path, text: object) -> dict[str, str]:
    """A config: 'BLOCK_M: 16, num_warps: 4, ...'."""
    pairs = [part.split(": ") for part in text.split(", ")] if isinstance(text, str) else []
    if not pairs or any(len(pair) != 2 for pair in pairs) or len({name for name, _ in pairs}) != len(pairs):
        raise InputError(path, f"config {shown(text)} is not a list of NAME: VALUE")
    return dict(pairs)


def _integer(text: str) -> int | None:
    if text in ("True", "False"):
        return int(text == "True")
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def _columns(
    path: Path, names: Sequence[str], keys: Sequence[tuple[str, ...]]
) -> tuple[list[str], list[list[int]], dict[str, str]]:
    """Integer features by name; what is no integer (dtypes, probabilities) must be the same everywhere."""
    width = len(keys[0])
    if any(len(key) != width for key in keys) or width < len(names):
        raise InputError(path, "its scenarios do not match its 'keys'")
    labels = [*names, *(f"argument_dtype_{i}" for i in range(width - len(names)))]
    kept: list[str] = []
    columns: list[list[int]] = []
    fixed: dict[str, str] = {}
    for position, label in enumerate(labels):
        texts = [key[position] for key in keys]
        numbers = [number for text in texts if (number := _integer(text)) is not None]
        if len(numbers) == len(texts):
            if problem_with_name(label) is not None or label in kept:
                raise InputError(path, f"key {shown(label)} {problem_with_name(label) or 'appears twice'}")
            kept.append(label)
            columns.append(numbers)
        elif len(set(texts)) == 1:
            fixed[label] = texts[0]
        else:
            raise InputError(path, f"key {shown(label)} varies but is no integer; a tree cannot split on it")
    if not kept:
        raise InputError(path, "has no integer key, so there is nothing to tell scenarios apart")
    return kept, [list(row) for row in zip(*columns, strict=True)], fixed


def _distinct_configs(
    path: Path, configs: Sequence[Mapping[str, str]]
) -> tuple[list[str], list[dict[str, int]], dict[str, str]]:
    """An id and the integer parameters of each scenario's config, and the parameters that are no integers."""
    names = list(configs[0])
    if any(list(config) != names for config in configs):
        raise InputError(path, "its configs have different parameters")
    varying = [name for name in names if len({config[name] for config in configs}) > 1]
    numeric = [name for name in names if all(_integer(config[name]) is not None for config in configs)]
    for name in names:
        if name in numeric and problem_with_name(name) is not None:
            raise InputError(path, f"parameter {shown(name)} {problem_with_name(name)}")
        if name not in numeric and len({config[name] for config in configs}) > 1:
            raise InputError(path, f"parameter {shown(name)} varies but is no integer")
    ids = [
        "-".join(f"{name}={_integer(config[name])}" for name in varying) or "the-only" for config in configs
    ]
    parameters = [{name: int(_integer(config[name]) or 0) for name in numeric} for config in configs]
    return ids, parameters, {name: configs[0][name] for name in names if name not in numeric}


def _first_positions(ids: Sequence[str]) -> list[int]:
    """Where each id first appears, in the order of the ids (so that a new winner moves no other column)."""
    first: dict[str, int] = {}
    for position, text in enumerate(ids):
        first.setdefault(text, position)
    return [first[text] for text in sorted(first, key=lambda t: [int(n) for n in re.findall(r"=(-?\d+)", t)])]


def _microseconds(path: Path, cache: Mapping[str, Any], key: str) -> float:
    values = cache["timings"].get(key)
    labels = cache["timings_data"].get("labels", ["ms"])
    unit = labels[0] if isinstance(labels, list) and labels else labels
    if not isinstance(unit, str) or unit not in _UNITS_TO_US:
        raise InputError(path, f"unknown unit of time {shown(unit)}")
    if not isinstance(values, list) or not values or type(values[0]) not in (int, float):
        raise InputError(path, f"scenario {shown(key)} has no time")
    if not abs(values[0]) < 1e12:
        raise InputError(path, f"scenario {shown(key)} has the time {shown(values[0])} {unit}")
    time = float(values[0]) * _UNITS_TO_US[unit]
    if not 1e-3 <= time < 1e12:
        raise InputError(path, f"scenario {shown(key)} has the time {time} microseconds")
    return time


def _timing(cache: Mapping[str, Any]) -> dict[str, Any]:
    data = cache["timings_data"]
    known = {"cuda_graphs": (bool,), "warmup_t_ms": (int, float), "rep_t_ms": (int, float)}
    return {name: data[name] for name, kind in known.items() if isinstance(data.get(name), kind)}
