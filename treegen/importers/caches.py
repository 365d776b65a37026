"""Import the caches of flash-linear-attention, Kernel Tuner and gemlite, all of them JSON.

- flash-linear-attention (fla/ops/utils/cache.py) keeps `<kernel>.json` for each GPU: the config that won for
  each key of Triton's autotuner, mostly with its time, and a default config for keys that it lacks.
- Kernel Tuner keeps the times of all configs of one kernel and problem size, in milliseconds.
- gemlite keeps for each of its kernels the config that won, by M rounded up to a power of two and more.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.core.files import read_text
from treegen.core.table import Cells
from treegen.importers.sources import (
    NO_TIME,
    NO_TIMES,
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    config_of,
    microseconds,
    read_json,
)
from treegen.importers.triton_cache import config_and_time, shape_of
from tuning_table.names import kernel_name

_GEMLITE = ("M", "N", "K", "group_size", "elements_per_sample", "type_id")


def read_fla(path: Path, options: ImportOptions) -> Iterator[Measurements]:
    """The winners of a <kernel>.json of fla. Raises InputError."""
    match content := read_json(path, "fla", infinite=True):
        case {"kernel_name": str(name), "autotune_entries": dict(entries)} if entries:
            origin = {"tool": "flash-linear-attention", "function": name}
        case _:
            what = "lacks a proper 'kernel_name' or 'autotune_entries': is it fla's?"
            raise InputError(path, what)
    rows, timing = [], "Triton's do_bench, median"
    for entry in entries.values():
        match entry:
            case {"autotune_key": list(key)}:
                timed = [entry.get("config"), entry.get("best_timing", NO_TIME / 1e3)]
                rows.append(Measurement(shape_of(path, key, options), *config_and_time(path, timed)))
            case _:
                raise InputError(path, f"has the entry {shown(entry)}, which has no autotune_key")
        timing = timing if "best_timing" in entry else NO_TIMES
    if isinstance(triton := content.get("triton_version"), str):
        origin["triton"] = triton
    device = options.needed_device(path, "fla")
    yield Measurements(path, kernel_name(name), device, tuple(rows), origin, timing=timing)


def read_kernel_tuner(path: Path, options: ImportOptions) -> Iterator[Measurements]:
    """The times in a cache of Kernel Tuner. Raises InputError."""
    text = read_text(path).rstrip()
    try:
        json.loads(text)
    except ValueError:  # Kernel Tuner closes a cache only when a run has tried everything
        text = f"{text.rstrip(',')}}}}}"
    match read_json(path, "Kernel Tuner", infinite=True, text=text):
        case {
            "kernel_name": str(name),
            "device_name": str(device),
            "tune_params_keys": list(names),
            "cache": dict(cache),
            "problem_size": sizes,
        } if cache:
            sizes = sizes if isinstance(sizes, list) else [sizes]
        case _:
            what = "lacks a kernel_name, device_name, tune_params_keys, problem_size or cache"
            raise InputError(path, f"{what}: is it a cache of Kernel Tuner?")
    if not all(type(size) is int for size in sizes):
        raise InputError(path, f"has the problem_size {shown(sizes)}, not integers, as features need")
    shape: dict[str, Value] = {f"problem_{axis}": size for axis, size in zip("xyz", sizes, strict=False)}
    rows = []
    for entry in cache.values():
        if not isinstance(entry, dict) or not all(name in entry for name in names):
            raise InputError(path, f"has the entry {shown(entry)}, which lacks a parameter")
        time = entry.get("time")
        failed = not isinstance(time, int | float) or time >= 1e20  # a text, as RuntimeFailedConfig, or 1e20
        time = math.inf if failed else microseconds(path, float(time or 0), "ms")
        rows.append(Measurement(shape, {name: entry[name] for name in names}, time))
    origin, notes = {"tool": "Kernel Tuner", "function": name}, "Its features are the problem's sizes."
    device, timing = options.device or device, "Kernel Tuner, mean"
    yield Measurements(path, kernel_name(name), device, tuple(rows), origin, Cells.MEASURED, timing, notes)


def read_gemlite(path: Path, options: ImportOptions) -> Iterator[Measurements]:
    """The winners of each kernel in a file of gemlite. Raises InputError."""
    device = options.needed_device(path, "gemlite")
    for name, entries in read_json(path, "gemlite").items():
        if not isinstance(entries, dict):
            raise InputError(path, f"maps {shown(name)} to {shown(entries)}, not to configs by shape")
        rows = []
        for key, config in entries.items():
            if not re.fullmatch(r"\([0-9]{1,18}(, [0-9]{1,18}){4,5}\)", key):
                raise InputError(path, f"has the key {shown(key)}, which is not of {', '.join(_GEMLITE)}")
            sizes = map(int, key.strip("()").split(", "))
            shape: dict[str, Value] = dict(zip(_GEMLITE, sizes, strict=False))
            rows.append(Measurement(shape, config_of(path, key, config), NO_TIME))
        if rows:
            origin, lookup = {"tool": "gemlite"}, {"M": "at_most"}
            yield Measurements(path, kernel_name(name), device, tuple(rows), origin, lookup=lookup)
