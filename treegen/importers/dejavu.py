"""Import triton-dejavu caches (https://github.com/IBM/triton-dejavu, storage layout of version 0.7).

For every tuned key (a scenario), a cache keeps the config that won and its time. It keeps neither the times
of other configs nor which configs were tried. The result is a winner table: each row has one filled cell.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from treegen.core.errors import InputError, shown
from treegen.core.files import read_text, try_path
from treegen.core.names import device_key, problem_with_name
from treegen.core.table import Cells
from treegen.importers import ImportedTable
from tuning_table.table import FORMAT
from tuning_table.writer import table_texts

_FOLDERS = re.compile(
    r".*/dejavu_(?P<dejavu>[^/]*)/triton_(?P<triton>[^/]*)/(?P<toolkit>[^/]*)/gpu_(?P<gpu>[^/]*)/[^/]*"
    r"/autotune_config-[^/]*/code_version-(?P<code_version>[^/]*)/tune_features-[^/]*/kernel_configs-[^/]*"
    r"/[^/]*/[^/]*",
    re.DOTALL,
)
_UNITS_TO_US = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
_NOTES = """\
Imported by `treegen import dejavu`, not measured by this project.
Only winners: the other configs' times were not kept."""


def import_dejavu(source: Path, credit: Mapping[str, str] | None = None) -> list[ImportedTable]:
    """The tables of every cache.json at or below `source`; `credit` goes into their origin.

    Raises InputError if there is none, or if one is malformed.
    """
    if not try_path(source, Path.exists):
        raise InputError(source, "no such file or folder")
    caches = (
        [source] if source.is_file() else try_path(source, lambda folder: sorted(folder.rglob("cache.json")))
    )
    if not caches:
        raise InputError(source, "holds no triton-dejavu cache (cache.json)")
    return [_import_cache(path, credit or {}) for path in caches]


def _import_cache(path: Path, credit: Mapping[str, str]) -> ImportedTable:
    folders = _FOLDERS.fullmatch(path.resolve().as_posix())
    if folders is None:
        what = "is not in triton-dejavu's folders (dejavu_V/triton_V/<toolkit>/gpu_<name>/<kernel>/...)"
        raise InputError(path, f"{what}, which say what GPU it is from; keep them")
    gpu = folders["gpu"].replace("_", " ")
    cache = _json(path)
    kernel = _kernel_name(path, cache)
    keys = [_key(path, text) for text in cache["cache"]]
    names, features, fixed_features = _columns(path, [str(name) for name in cache["keys"]], keys)
    winners = [_config(path, text) for text in cache["cache"].values()]
    ids, parameters, fixed_parameters = _ids_and_parameters(path, winners)
    # The order of columns does not depend on where a config wins, so that a new winner moves no other column.
    columns = sorted(set(ids), key=lambda config_id: [int(n) for n in re.findall(r"=(-?\d+)", config_id)])
    configs = [{"id": config_id, **parameters[config_id]} for config_id in columns]
    scenarios, rows = [], []
    for i, key in enumerate(cache["cache"]):
        time = f"{_microseconds(path, cache, key):.4f}".rstrip("0").rstrip(".")
        scenarios.append([f"s{i + 1:03}", *features[i]])
        rows.append([f"s{i + 1:03}", 1, *(time if config_id == ids[i] else "" for config_id in columns)])
    run = {
        "format": FORMAT,
        "kernel": kernel,
        "device": {"name": gpu},
        "cells": Cells.WINNERS.value,
        "timing": _timing(cache),
        "origin": {
            **credit,
            "tool": f"triton-dejavu {folders['dejavu']}",
            "signature": str(cache["signature"]),
            "triton": folders["triton"],
            "toolkit": folders["toolkit"].replace("_", " ", 1),
            "code_version": folders["code_version"],
            "evaluated_configs": cache["evaluated_configs"],
            "tuning_seconds": round(cache["total_bench_time_s"]),
            "same_in_every_scenario": fixed_features,
            "same_in_every_config": fixed_parameters,
        },
        "features": names,
        "configs": configs,
    }
    files = table_texts(run, scenarios, rows, _NOTES)
    return ImportedTable(kernel, device_key(gpu), path, len(rows), len(configs), files)


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
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        twice = next(key for key, _ in pairs if [k for k, _ in pairs].count(key) > 1)
        raise ValueError(f"key {shown(twice)} appears twice")
    return mapping


def _finite(text: str) -> float:
    return number if math.isfinite(number := float(text)) else _no_number(shown(text))


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _kernel_name(path: Path, cache: Mapping[str, Any]) -> str:
    match = re.fullmatch(r"JITFunction\(.*:(\w+)\)", cache["signature"])
    name = match[1] if match else ""
    if problem_with_name(name) is not None:
        raise InputError(path, f"signature {shown(cache['signature'])} names no kernel")
    return name


def _key(path: Path, text: str) -> tuple[str, ...]:
    """A scenario: the tuple of key values and argument dtypes, which triton-dejavu writes as Python text."""
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
    """A config, from a text such as 'BLOCK_M: 16, num_warps: 4'."""
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
) -> tuple[list[str], list[tuple[int, ...]], dict[str, str]]:
    """Integer features by name, their values in each scenario, and the texts that all scenarios share.

    A key that is not an integer (a dtype, a probability) must be the same in every scenario.
    """
    width = len(keys[0])
    if any(len(key) != width for key in keys) or width < len(names):
        raise InputError(path, "its scenarios do not match its 'keys'")
    labels = [*names, *(f"argument_dtype_{i}" for i in range(width - len(names)))]
    columns: dict[str, list[int]] = {}
    fixed: dict[str, str] = {}
    for position, label in enumerate(labels):
        texts = [key[position] for key in keys]
        numbers = [number for text in texts if (number := _integer(text)) is not None]
        if len(numbers) == len(texts):
            if problem_with_name(label) is not None or label in columns:
                raise InputError(path, f"key {shown(label)} {problem_with_name(label) or 'appears twice'}")
            columns[label] = numbers
        elif len(set(texts)) == 1:
            fixed[label] = texts[0]
        else:
            raise InputError(
                path, f"key {shown(label)} varies but is not an integer; a tree cannot split on it"
            )
    if not columns:
        raise InputError(path, "has no integer key, so there is nothing to tell scenarios apart")
    return list(columns), list(zip(*columns.values(), strict=True)), fixed


def _ids_and_parameters(
    path: Path, configs: Sequence[Mapping[str, str]]
) -> tuple[list[str], dict[str, dict[str, int]], dict[str, str]]:
    """The id of each config, the integer parameters of each id, and the texts that all configs share."""
    names = list(configs[0])
    if any(list(config) != names for config in configs):
        raise InputError(path, "its configs have different parameters")
    varying = [name for name in names if len({config[name] for config in configs}) > 1]
    numeric = [name for name in names if all(_integer(config[name]) is not None for config in configs)]
    for name in names:
        if name in numeric and problem_with_name(name) is not None:
            raise InputError(path, f"parameter {shown(name)} {problem_with_name(name)}")
        if name not in numeric and name in varying:
            raise InputError(path, f"parameter {shown(name)} varies but is not an integer")
    ids = [
        "-".join(f"{name}={_integer(config[name])}" for name in varying) or "the-only" for config in configs
    ]
    parameters = [{name: _integer(config[name]) or 0 for name in numeric} for config in configs]
    fixed = {name: configs[0][name] for name in names if name not in numeric}
    return ids, dict(zip(ids, parameters, strict=True)), fixed


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
