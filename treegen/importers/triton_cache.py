"""Import the files of Triton's own autotuner, `<kernel>.autotune.json` (Triton 3.6 to 3.9).

Triton writes them with TRITON_CACHE_AUTOTUNING=1 or `cache_results=True`: one file for each value of the key,
with the times of all configs: [median, 20%, 80%] in milliseconds, Infinity for a config that failed. A file
does not say the names of the key's values, the GPU or Triton's version. Triton writes none for a kernel of
which a config has a pre_hook.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treegen.core.errors import InputError, shown
from treegen.core.table import Cells
from treegen.importers.sources import (
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    files_of,
    flattened,
    microseconds,
    read_each,
    read_json,
)
from treegen.importers.tables import merged
from tuning_table.names import kernel_name

TOOL = "Triton's autotuner"
_SUFFIX = ".autotune.json"
_NOTES = "The files do not name the key's values, the GPU and Triton's version."


def read_triton(source: Path, options: ImportOptions) -> list[Measurements]:
    """The times of every *.autotune.json at or below `source`, such as Triton's cache. Raises InputError."""
    paths = files_of(source, f"*{_SUFFIX}", TOOL)
    if options.kernel is not None:
        exact = [path for path in paths if _kernel(path) == options.kernel]
        paths = exact or [p for p in paths if kernel_name(_kernel(p)) == kernel_name(options.kernel)] or paths
    names: dict[str, str] = {}
    for path in paths:
        if (other := names.setdefault(kernel_name(_kernel(path)), _kernel(path))) != _kernel(path):
            raise InputError(path, f"would share a table with the kernel {other}; select one with --kernel")
    return merged(read_each(paths, lambda path: [_read_file(path, options)]))


def _kernel(path: Path) -> str:
    return path.name.removesuffix(_SUFFIX)


def _read_file(path: Path, options: ImportOptions) -> Measurements:
    if not path.name.endswith(_SUFFIX):
        raise InputError(path, f"is no file of {TOOL}: its name must end in {_SUFFIX}")
    content = read_json(path, TOOL, infinite=True)
    key, timings = content.get("key"), content.get("configs_timings")
    if not isinstance(key, list) or not isinstance(timings, list) or not timings:
        raise InputError(path, "lacks a proper 'key' or 'configs_timings': did Triton's autotuner write it?")
    shape = shape_of(path, key, options)
    rows = tuple(Measurement(shape, *config_and_time(path, entry)) for entry in timings)
    device = options.needed_device(path, TOOL)
    kernel, timing = kernel_name(_kernel(path)), "Triton's do_bench, median"
    origin = {"tool": "Triton's autotuner", "function": _kernel(path)}
    return Measurements("triton", path, kernel, device, Cells.MEASURED, rows, timing, _NOTES, origin)


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
    names += [f"argument_dtype_{place}" for place in range(len(values) - len(names))]
    return dict(zip(names, values, strict=True))


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
