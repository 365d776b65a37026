"""Import results of Kernel Tuner (https://github.com/KernelTuner/kernel_tuner): its caches and T4 files.

A cache (schema 1.1 or older) names kernel, GPU and problem size, and holds each config's mean time in
milliseconds, or the name of its failure. A T4 file (https://github.com/odgaard/TuningSchema, version 1.0) has
neither kernel nor GPU nor shape: the shape stands in the file's name, as in `w=4096,h=4096.json`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treegen.core.errors import InputError, shown
from treegen.core.table import Cells
from treegen.importers.sources import (
    UNITS_TO_US,
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    files_of,
    flattened,
    microseconds,
    read_json,
    value_of,
)
from treegen.importers.tables import merged

TOOL = "Kernel Tuner"
_TIMING = "mean of Kernel Tuner's runs"
_NOTES = """\
Imported by `treegen import kernel-tuner`, not measured by this project.
The source does not say which version of the compiler was used."""


def read_kernel_tuner(source: Path, options: ImportOptions) -> list[Measurements]:
    """The times of every cache and T4 file at or below `source`; each holds one shape. Raises InputError."""
    return merged(_read_file(path, options) for path in files_of(source, "*.json", TOOL))


def _read_file(path: Path, options: ImportOptions) -> Measurements:
    content = read_json(path, TOOL)
    if isinstance(content.get("results"), list):
        return _t4(path, content["results"], options)
    keys, cache = content.get("tune_params_keys"), content.get("cache")
    if not isinstance(keys, list) or not isinstance(cache, dict) or not all(isinstance(k, str) for k in keys):
        what = "neither a cache ('tune_params_keys', 'cache') nor a T4 file ('results')"
        raise InputError(path, f"is {what} of {TOOL}")
    for name, kind in {"kernel_name": str, "device_name": str}.items():
        if not isinstance(content.get(name), kind):
            raise InputError(path, f"lacks a proper '{name}': is it a cache of {TOOL}?")
    shape = _problem_size(path, content.get("problem_size"), options)
    rows = tuple(
        Measurement(shape, _parameters(path, entry, keys), _milliseconds(path, entry.get("time")))
        for entry in cache.values()
    )
    return _measurements(path, content["kernel_name"], options.device or content["device_name"], rows)


def _t4(path: Path, results: list[Any], options: ImportOptions) -> Measurements:
    shape = {
        name: value_of(value)
        for part in path.stem.split(",")
        for name, equals, value in [part.partition("=")]
        if equals
    }
    if not shape:
        raise InputError(
            path, "a T4 file does not hold its shape; put it into the name, as in w=4096,h=4096.json"
        )
    rows = []
    for entry in results:
        if not isinstance(entry, dict) or not isinstance(entry.get("configuration"), dict):
            raise InputError(path, f"has the result {shown(entry)} without a 'configuration'")
        failed = entry.get("invalidity", "correct") != "correct"
        config = _parameters(path, entry["configuration"], list(entry["configuration"]))
        rows.append(Measurement(shape, config, math.inf if failed else _measured(path, entry)))
    kernel, device = options.needed_kernel(path, "a T4 file"), options.needed_device(path, "a T4 file")
    return _measurements(path, kernel, device, tuple(rows))


def _measurements(path: Path, kernel: str, device: str, rows: tuple[Measurement, ...]) -> Measurements:
    if not rows:
        raise InputError(path, "holds no config")
    origin = {"tool": TOOL}
    return Measurements(TOOL, path, kernel, device, Cells.MEASURED, rows, _TIMING, _NOTES, origin)


def _problem_size(path: Path, size: Any, options: ImportOptions) -> dict[str, Value]:
    sizes = flattened("problem_size", size if isinstance(size, list) else [size])
    if not all(isinstance(value, int) for value in sizes.values()):
        raise InputError(path, f"has the problem size {shown(size)}; integers are needed")
    names = options.features or tuple(sizes)
    if len(names) != len(sizes):
        raise InputError(
            path, f"has a problem size of {len(sizes)} numbers, but --features names {len(names)}"
        )
    return dict(zip(names, sizes.values(), strict=True))


def _parameters(path: Path, entry: Any, names: list[Any]) -> dict[str, Value]:
    if not isinstance(entry, dict) or any(name not in entry for name in names):
        raise InputError(path, f"has the entry {shown(entry)}, which lacks a tuned parameter")
    return {key: plain for name in names for key, plain in flattened(str(name), entry[name]).items()}


def _milliseconds(path: Path, time: Any) -> float:
    if isinstance(time, int | float):
        return microseconds(path, time, "ms")
    if isinstance(time, str):  # such as CompilationFailedConfig
        return math.inf
    raise InputError(path, f"has the time {shown(time)}, which is neither a number nor the name of a failure")


def _measured(path: Path, entry: Mapping[str, Any]) -> float:
    """The measurement `time` of a T4 result, in microseconds; its unit is milliseconds if it names none."""
    for found in entry.get("measurements") or ():
        if isinstance(found, dict) and found.get("name") == "time":
            unit = found.get("unit") or "ms"
            if unit not in UNITS_TO_US or not isinstance(found.get("value"), int | float):
                raise InputError(path, f"has the measurement {shown(str(found))}, which is no time")
            return microseconds(path, found["value"], unit)
    raise InputError(path, "has a result without a measurement called 'time'")
