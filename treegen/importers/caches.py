"""Import the caches of autotuners, all of them JSON.

- Triton (3.6 to 3.9) writes `<kernel>.autotune.json` with TRITON_CACHE_AUTOTUNING=1 or `cache_results=True`:
  a file for each value of the key, with the times of all configs: [median, 20%, 80%] in milliseconds,
  Infinity for a config that failed. It does not say the names of the key's values, the GPU or Triton's
  version. There is none for a kernel of which a config has a pre_hook.
- triton-dejavu (https://github.com/IBM/triton-dejavu, storage layout of version 0.7) keeps for every tuned
  key the config that won and its time. It keeps neither the times of other configs nor which were tried.
- flash-linear-attention (fla/ops/utils/cache.py) keeps `<kernel>.json` for each GPU: the config that won for
  each key of Triton's autotuner, mostly with its time, and a default config for keys that it lacks.
- Kernel Tuner keeps the times of all configs of one kernel and problem size, in milliseconds.
- gemlite keeps for each of its kernels the config that won, by M rounded up to a power of two and more.
"""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from treegen.core.errors import InputError, shown
from treegen.core.files import read_text
from treegen.core.table import Cells
from treegen.importers.sources import (
    NO_TIME,
    NO_TIMES,
    UNITS_TO_US,
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    config_of,
    flattened,
    microseconds,
    read_json,
    value_of,
)
from tuning_table.names import kernel_name

DEJAVU = "triton-dejavu"
TRITON = "Triton's autotuner"
_DEJAVU_FOLDERS = re.compile(
    r".*/dejavu_(?P<dejavu>[^/]*)/triton_(?P<triton>[^/]*)/(?P<toolkit>[^/]*)/gpu_(?P<gpu>[^/]*)/[^/]*"
    r"/autotune_config-[^/]*/code_version-(?P<code_version>[^/]*)/tune_features-[^/]*/kernel_configs-[^/]*"
    r"/[^/]*/[^/]*",
    re.DOTALL,
)
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


def read_dejavu(path: Path, options: ImportOptions) -> Iterator[Measurements]:
    """The winners in a cache.json. Raises InputError for a malformed one."""
    match cache := read_json(path, DEJAVU):
        case {
            "signature": str(signature),
            "keys": list(keys),
            "cache": dict(winners),
            "timings": dict(),
            "timings_data": dict(data),
            "evaluated_configs": int(tried),
            "total_bench_time_s": int() | float() as seconds,
        } if winners:
            origin: dict[str, Any] = {"tool": DEJAVU, "signature": signature}
        case _:
            raise InputError(path, "lacks scenarios or a proper part of a cache: is it triton-dejavu's?")
    function = re.fullmatch(r"JITFunction\(.*:(\w+)\)", signature)
    if function is None:
        raise InputError(path, f"signature {shown(signature)} names no kernel")
    folders = _DEJAVU_FOLDERS.fullmatch(path.resolve().as_posix())
    if folders is None and options.device is None:
        what = "lies outside triton-dejavu's folders (dejavu_V/triton_V/<toolkit>/gpu_<name>/<kernel>/...)"
        raise InputError(path, f"{what}, which name the GPU; name it with --device NAME")
    names = list(map(str, keys))
    shapes = [_dejavu_shape(path, names, key) for key in winners]
    if len(set(map(tuple, shapes))) > 1:
        raise InputError(path, "its scenarios do not match its 'keys'")
    configs = (_dejavu_config(path, config) for config in winners.values())
    times = (_dejavu_time(path, cache, key) for key in winners)
    rows = tuple(map(Measurement, shapes, configs, times))
    device, triton = options.device, ""
    if folders is not None:
        device = device or folders["gpu"].replace("_", " ")
        triton = folders["triton"]
        origin["tool"] = f"{DEJAVU} {folders['dejavu']}"
        origin["toolkit"] = folders["toolkit"].replace("_", " ", 1)
        origin["code_version"] = folders["code_version"]
    origin |= {"evaluated_configs": tried, "tuning_seconds": round(seconds)}
    known = {"cuda_graphs": (bool,), "warmup_t_ms": (int, float), "rep_t_ms": (int, float)}
    timing = {name: data[name] for name, kind in known.items() if isinstance(data.get(name), kind)}
    kernel = kernel_name(function[1])
    yield Measurements(path, kernel, device or "", rows, origin, timing=timing, triton=triton)


def _dejavu_shape(path: Path, names: list[str], text: str) -> dict[str, Value]:
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


def _dejavu_config(path: Path, text: object) -> dict[str, Value]:
    """A config, from a text such as 'BLOCK_M: 16, num_warps: 4'."""
    pairs = [part.split(": ") for part in text.split(", ")] if isinstance(text, str) else []
    if not pairs or any(len(pair) != 2 for pair in pairs) or len({name for name, _ in pairs}) != len(pairs):
        raise InputError(path, f"config {shown(text)} is not a list of NAME: VALUE")
    return {name: value_of(value) for name, value in pairs}


def _dejavu_time(path: Path, cache: Mapping[str, Any], key: str) -> float:
    values = cache["timings"].get(key)
    labels = cache["timings_data"].get("labels", ["ms"])
    unit = labels[0] if isinstance(labels, list) and labels else labels
    if not isinstance(unit, str) or unit not in UNITS_TO_US:
        raise InputError(path, f"unknown unit of time {shown(unit)}")
    if not isinstance(values, list) or not values or type(values[0]) not in (int, float):
        raise InputError(path, f"scenario {shown(key)} has no time")
    return microseconds(path, values[0], unit)


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
