"""Import triton-dejavu caches (https://github.com/IBM/triton-dejavu, storage layout of version 0.7).

For every tuned key (a scenario), a cache keeps the config that won and its time. It keeps neither the times
of other configs nor which configs were tried. The result is a winner table: each row has one filled cell.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from treegen.core.errors import InputError, shown
from treegen.core.files import problem_with_name
from treegen.core.table import Cells
from treegen.importers.sources import (
    UNITS_TO_US,
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    files_of,
    microseconds,
    read_each,
    read_json,
    value_of,
)
from tuning_table.names import kernel_name

TOOL = "triton-dejavu"
_FOLDERS = re.compile(
    r".*/dejavu_(?P<dejavu>[^/]*)/triton_(?P<triton>[^/]*)/(?P<toolkit>[^/]*)/gpu_(?P<gpu>[^/]*)/[^/]*"
    r"/autotune_config-[^/]*/code_version-(?P<code_version>[^/]*)/tune_features-[^/]*/kernel_configs-[^/]*"
    r"/[^/]*/[^/]*",
    re.DOTALL,
)
_NOTES = "Only winners: the other configs' times were not kept."


def read_dejavu(source: Path, options: ImportOptions) -> list[Measurements]:
    """The winners in every cache.json at or below `source`. Raises InputError for a malformed one."""
    paths = files_of(source, "cache.json", TOOL)
    return read_each(paths, lambda path: [_read_cache(path, options)])


def _read_cache(path: Path, options: ImportOptions) -> Measurements:
    cache = _checked(path, read_json(path, TOOL))
    folders = _FOLDERS.fullmatch(path.resolve().as_posix())
    if folders is None and options.device is None:
        what = "lies outside triton-dejavu's folders (dejavu_V/triton_V/<toolkit>/gpu_<name>/<kernel>/...)"
        raise InputError(path, f"{what}, which name the GPU; name it with --device NAME")
    rows = tuple(
        Measurement(
            _shape(path, [str(name) for name in cache["keys"]], key),
            _config(path, config),
            _time(path, cache, key),
        )
        for key, config in cache["cache"].items()
    )
    if len({tuple(row.shape) for row in rows}) > 1:
        raise InputError(path, "its scenarios do not match its 'keys'")
    device, triton, origin = options.device, "", {"tool": TOOL, "signature": cache["signature"]}
    if folders is not None:
        device = device or folders["gpu"].replace("_", " ")
        origin["tool"] = f"{TOOL} {folders['dejavu']}"
        triton = folders["triton"]
        origin["toolkit"] = folders["toolkit"].replace("_", " ", 1)
        origin["code_version"] = folders["code_version"]
    origin["evaluated_configs"] = cache["evaluated_configs"]
    origin["tuning_seconds"] = round(cache["total_bench_time_s"])
    kernel, timing = _kernel_name(path, cache), _timing(cache)
    found = Measurements("dejavu", path, kernel, device or "", Cells.WINNERS, rows, timing, _NOTES, origin)
    return replace(found, triton=triton)


def _checked(path: Path, cache: Mapping[str, Any]) -> Mapping[str, Any]:
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
        if not isinstance(cache.get(name), kind):
            raise InputError(path, f"lacks a proper '{name}': is it a triton-dejavu cache?")
    if not cache["cache"]:
        raise InputError(path, "holds no scenario")
    return cache


def _kernel_name(path: Path, cache: Mapping[str, Any]) -> str:
    match = re.fullmatch(r"JITFunction\(.*:(\w+)\)", cache["signature"])
    name = match[1] if match else ""
    if problem_with_name(kernel_name(name)) is not None:
        raise InputError(path, f"signature {shown(cache['signature'])} names no kernel")
    return kernel_name(name)


def _shape(path: Path, names: Sequence[str], text: str) -> dict[str, Value]:
    """A scenario: the tuple of key values and argument dtypes, which triton-dejavu writes as Python text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of `1if x else y` on standard error
            values = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        values = None
    if not isinstance(values, tuple) or not all(isinstance(value, str) for value in values):
        raise InputError(path, f"scenario {shown(text)} is not a tuple of texts")
    labels = [*names, *(f"argument_dtype_{i}" for i in range(len(values) - len(names)))]
    if len(values) < len(names):
        raise InputError(path, "its scenarios do not match its 'keys'")
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(path, f"key {shown(label)} appears twice")
    return {label: value_of(value) for label, value in zip(labels, values, strict=True)}


def _config(path: Path, text: object) -> dict[str, Value]:
    """A config, from a text such as 'BLOCK_M: 16, num_warps: 4'."""
    pairs = [part.split(": ") for part in text.split(", ")] if isinstance(text, str) else []
    if not pairs or any(len(pair) != 2 for pair in pairs) or len({name for name, _ in pairs}) != len(pairs):
        raise InputError(path, f"config {shown(text)} is not a list of NAME: VALUE")
    return {name: value_of(value) for name, value in pairs}


def _time(path: Path, cache: Mapping[str, Any], key: str) -> float:
    values = cache["timings"].get(key)
    labels = cache["timings_data"].get("labels", ["ms"])
    unit = labels[0] if isinstance(labels, list) and labels else labels
    if not isinstance(unit, str) or unit not in UNITS_TO_US:
        raise InputError(path, f"unknown unit of time {shown(unit)}")
    if not isinstance(values, list) or not values or type(values[0]) not in (int, float):
        raise InputError(path, f"scenario {shown(key)} has no time")
    return microseconds(path, values[0], unit)


def _timing(cache: Mapping[str, Any]) -> dict[str, Any]:
    data = cache["timings_data"]
    known = {"cuda_graphs": (bool,), "warmup_t_ms": (int, float), "rep_t_ms": (int, float)}
    return {name: data[name] for name, kind in known.items() if isinstance(data.get(name), kind)}
