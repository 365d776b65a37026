"""Import triton-dejavu caches (https://github.com/IBM/triton-dejavu, storage layout of version 0.7).

For every tuned key (a scenario), a cache keeps the config that won and its time. It keeps neither the times
of other configs nor which configs were tried. The result is a winner table: each row has one filled cell.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from treegen.core.errors import InputError, shown
from treegen.importers.caches import with_dtypes
from treegen.importers.sources import (
    UNITS_TO_US,
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    microseconds,
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


def read(path: Path, options: ImportOptions) -> Iterator[Measurements]:
    """The winners in a cache.json. Raises InputError for a malformed one."""
    match cache := read_json(path, TOOL):
        case {
            "signature": str(signature),
            "keys": list(keys),
            "cache": dict(winners),
            "timings": dict(),
            "timings_data": dict(data),
            "evaluated_configs": int(tried),
            "total_bench_time_s": int() | float() as seconds,
        } if winners:
            origin: dict[str, Any] = {"tool": TOOL, "signature": signature}
        case _:
            raise InputError(path, "lacks scenarios or a proper part of a cache: is it triton-dejavu's?")
    function = re.fullmatch(r"JITFunction\(.*:(\w+)\)", signature)
    if function is None:
        raise InputError(path, f"signature {shown(signature)} names no kernel")
    folders = _FOLDERS.fullmatch(path.resolve().as_posix())
    if folders is None and options.device is None:
        what = "lies outside triton-dejavu's folders (dejavu_V/triton_V/<toolkit>/gpu_<name>/<kernel>/...)"
        raise InputError(path, f"{what}, which name the GPU; name it with --device NAME")
    names = list(map(str, keys))
    rows = tuple(
        Measurement(_shape(path, names, key), _config(path, config), _time(path, cache, key))
        for key, config in winners.items()
    )
    if len({tuple(row.shape) for row in rows}) > 1:
        raise InputError(path, "its scenarios do not match its 'keys'")
    device, triton = options.device, ""
    if folders is not None:
        device = device or folders["gpu"].replace("_", " ")
        triton = folders["triton"]
        origin["tool"] = f"{TOOL} {folders['dejavu']}"
        origin["toolkit"] = folders["toolkit"].replace("_", " ", 1)
        origin["code_version"] = folders["code_version"]
    origin |= {"evaluated_configs": tried, "tuning_seconds": round(seconds)}
    known = {"cuda_graphs": (bool,), "warmup_t_ms": (int, float), "rep_t_ms": (int, float)}
    timing = {name: data[name] for name, kind in known.items() if isinstance(data.get(name), kind)}
    kernel = kernel_name(function[1])
    yield Measurements(path, kernel, device or "", rows, origin, timing=timing, triton=triton)


def _shape(path: Path, names: list[str], text: str) -> dict[str, Value]:
    """A scenario: the tuple of key values and argument dtypes, which triton-dejavu writes as Python text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of `1if x else y` on standard error
            values = ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        values = None
    if not isinstance(values, tuple) or not all(isinstance(value, str) for value in values):
        raise InputError(path, f"scenario {shown(text)} is not a tuple of texts")
    labels = with_dtypes(names, len(values))
    if len(values) != len(set(labels)):
        raise InputError(path, "its scenarios do not match its 'keys', or a key appears twice")
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
