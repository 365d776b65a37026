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
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from treegen.core.errors import InputError, shown
from treegen.core.files import read_text
from treegen.core.table import Cells
from treegen.importers.sources import (
    NO_TIME,
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    config_of,
    files_of,
    microseconds,
    read_each,
    read_json,
)
from treegen.importers.tables import merged
from treegen.importers.triton_cache import config_and_time, shape_of
from tuning_table.names import kernel_name

_WINNERS = "Only winners: the other configs' times were not kept."
_NO_TIMES = "unknown: the source names winners without their times, so each cell is 1"
_GEMLITE = ("M", "N", "K", "group_size", "elements_per_sample", "type_id")


Read = Callable[[Path, ImportOptions], Iterable[Measurements]]


def reader_of(tool: str, read: Read) -> Callable[[Path, ImportOptions], list[Measurements]]:
    """The reader of all JSON files at or below a source, each of which `read` reads."""

    def read_all(source: Path, options: ImportOptions) -> list[Measurements]:
        return merged(read_each(files_of(source, "*.json", tool), lambda path: [*read(path, options)]))

    return read_all


def read_fla(path: Path, options: ImportOptions) -> Iterator[Measurements]:
    """The winners of a <kernel>.json of fla. Raises InputError."""
    content = read_json(path, "fla", infinite=True)
    name, entries = content.get("kernel_name"), content.get("autotune_entries")
    if not isinstance(name, str) or not isinstance(entries, dict) or not entries:
        raise InputError(path, "lacks a proper 'kernel_name' or 'autotune_entries': is it fla's?")
    rows = []
    for entry in entries.values():
        if not isinstance(entry, dict) or not isinstance(entry.get("autotune_key"), list):
            raise InputError(path, f"has the entry {shown(entry)}, which has no autotune_key")
        config, time = config_and_time(path, [entry.get("config"), entry.get("best_timing", NO_TIME / 1e3)])
        rows.append(Measurement(shape_of(path, entry["autotune_key"], options), config, time))
    timed = all("best_timing" in entry for entry in entries.values())
    origin = {"tool": "flash-linear-attention", "function": name}
    triton = content.get("triton_version")
    yield Measurements(
        "fla", path, kernel_name(name), options.needed_device(path, "fla"), Cells.WINNERS, tuple(rows),
        "Triton's do_bench, median" if timed else _NO_TIMES, _WINNERS,
        {**origin, **({"triton": triton} if isinstance(triton, str) else {})},
    )  # fmt: skip


def read_kernel_tuner(path: Path, options: ImportOptions) -> Iterator[Measurements]:
    """The times in a cache of Kernel Tuner. Raises InputError."""
    text = read_text(path).rstrip()
    try:
        json.loads(text)
    except ValueError:  # Kernel Tuner closes a cache only when a run has tried everything
        text = f"{text.rstrip(',')}}}}}"
    content = read_json(path, "Kernel Tuner", infinite=True, text=text)
    names, cache = content.get("tune_params_keys"), content.get("cache")
    name, device, sizes = (content.get(key) for key in ("kernel_name", "device_name", "problem_size"))
    if not (
        isinstance(name, str)
        and isinstance(device, str)
        and isinstance(names, list)
        and isinstance(cache, dict)
    ):
        what = "lacks a proper 'kernel_name', 'device_name', 'tune_params_keys' or 'cache'"
        raise InputError(path, f"{what}: is it a cache of Kernel Tuner?")
    sizes = sizes if isinstance(sizes, list) else [sizes]
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
    if not rows:
        raise InputError(path, "holds no config")
    notes = "Its features are the problem's sizes."
    yield Measurements(
        "kernel-tuner", path, kernel_name(name), options.device or device, Cells.MEASURED, tuple(rows),
        "Kernel Tuner, mean", notes, {"tool": "Kernel Tuner", "function": name},
    )  # fmt: skip


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
            yield Measurements(
                "gemlite", path, kernel_name(name), device, Cells.WINNERS, tuple(rows), _NO_TIMES, _WINNERS,
                {"tool": "gemlite"}, lookup={"M": "at_most"},
            )  # fmt: skip
