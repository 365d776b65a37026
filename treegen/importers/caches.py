"""Import the JSON caches of Triton's autotuner, flash-linear-attention, Kernel Tuner and gemlite.

- Triton (3.6 to 3.9) writes `<kernel>.autotune.json` with TRITON_CACHE_AUTOTUNING=1 or `cache_results=True`:
  a file for each value of the key, with the times of all configs: [median, 20%, 80%] in milliseconds,
  Infinity for a config that failed. It does not say the names of the key's values, the GPU or Triton's
  version. There is none for a kernel of which a config has a pre_hook.
- flash-linear-attention (fla/ops/utils/cache.py) keeps `<kernel>.json` for each GPU: the config that won for
  each key of Triton's autotuner, mostly with its time, and a default config for keys that it lacks.
- Kernel Tuner keeps the times of all configs of one kernel and problem size, in milliseconds.
- gemlite keeps for each of its kernels the config that won, by M rounded up to a power of two and more.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

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
    flattened,
    microseconds,
    read_json,
)
from tuning_table.names import kernel_name

TRITON = "Triton's autotuner"
_SUFFIX = ".autotune.json"
_NOTES = "The files do not name the key's values, the GPU and Triton's version."
_GEMLITE = ("M", "N", "K", "group_size", "elements_per_sample", "type_id")


def of_kernel(paths: list[Path], options: ImportOptions) -> list[Path]:
    """The files of the kernel that is wanted, or all. Raises InputError for two kernels of one name."""
    if options.kernel is not None:
        exact = [path for path in paths if _kernel(path) == options.kernel]
        paths = exact or [p for p in paths if kernel_name(_kernel(p)) == kernel_name(options.kernel)] or paths
    names: dict[str, str] = {}
    for path in paths:
        if (other := names.setdefault(kernel_name(_kernel(path)), _kernel(path))) != _kernel(path):
            raise InputError(path, f"would share a table with the kernel {other}; select one with --kernel")
    return paths


def _kernel(path: Path) -> str:
    return path.name.removesuffix(_SUFFIX)


def read_triton(path: Path, options: ImportOptions) -> Iterator[Measurements]:
    """The times of a <kernel>.autotune.json. Raises InputError."""
    if not path.name.endswith(_SUFFIX):
        raise InputError(path, f"is no file of {TRITON}: its name must end in {_SUFFIX}")
    match read_json(path, TRITON, infinite=True):
        case {"key": list(key), "configs_timings": [_, *_] as timings}:
            shape = shape_of(path, key, options)
            rows = tuple(Measurement(shape, *config_and_time(path, entry)) for entry in timings)
        case _:
            what = "lacks a proper 'key' or 'configs_timings': did Triton's autotuner write it?"
            raise InputError(path, what)
    kernel, origin = kernel_name(_kernel(path)), {"tool": TRITON, "function": _kernel(path)}
    device, timing = options.needed_device(path, TRITON), "Triton's do_bench, median"
    yield Measurements(path, kernel, device, rows, origin, Cells.MEASURED, timing, _NOTES)


def shape_of(path: Path, key: list[Any], options: ImportOptions) -> dict[str, Value]:
    """The key's values in the order of the decorator's `key`, and behind them the arguments' data types.

    A data type has no `torch.` before it, as `@tuned` looks for `bfloat16`.
    """
    values = [value.removeprefix("torch.") if isinstance(value, str) else value for value in key]
    if not all(value is None or isinstance(value, int | float | str) for value in values):
        raise InputError(path, f"key {shown(key)} holds more than numbers and texts")
    names = list(options.features)
    if not names:
        what = "give the names in @triton.autotune(key=...) with --features"
        raise InputError(path, f"has the key {shown(key)} without names; {what}")
    if len(names) > len(values):
        raise InputError(path, f"has a key of {len(values)} values, but --features names {len(names)}")
    return dict(zip(with_dtypes(names, len(values)), values, strict=True))


def with_dtypes(names: list[str], count: int) -> list[str]:
    """The names of `count` values: those of a key, behind which the arguments' data types stand."""
    return [*names, *(f"argument_dtype_{place}" for place in range(count - len(names)))]


def config_and_time(path: Path, entry: object) -> tuple[Mapping[str, Value], float]:
    """The config of an entry `[config, times]`, and its median time in microseconds. Raises InputError."""
    match entry:
        case [
            {"kwargs": dict(kwargs), **rest},
            list([int() | float() as median, *_]) | (int() | float() as median),
        ]:
            parameters = {**kwargs, **{name: value for name, value in rest.items() if name != "pre_hook"}}
            return flattened(parameters), microseconds(path, median, "ms")
    raise InputError(path, f"has the entry {shown(entry)}, which is not a config with its times")


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
