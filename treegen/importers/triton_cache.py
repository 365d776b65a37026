"""Import the files of Triton's own autotuner, `<kernel>.autotune.json` (Triton 3.6 to 3.9).

Triton writes them with TRITON_CACHE_AUTOTUNING=1 or `cache_results=True`: one file for each value of the key,
with the times of all configs: [median, 20%, 80%] in milliseconds, Infinity for a config that failed. A file
does not say the names of the key's values, the GPU or Triton's version. Triton writes none for a kernel of
which a config has a pre_hook.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from treegen.core.errors import InputError, shown
from treegen.core.table import Cells
from treegen.importers.sources import (
    ImportOptions,
    Measurement,
    Measurements,
    Value,
    flattened,
    microseconds,
    read_json,
)
from tuning_table.names import kernel_name

TOOL = "Triton's autotuner"
_SUFFIX = ".autotune.json"
_NOTES = "The files do not name the key's values, the GPU and Triton's version."


def selected(paths: list[Path], options: ImportOptions) -> list[Path]:
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


def read(path: Path, options: ImportOptions) -> Iterator[Measurements]:
    """The times of a <kernel>.autotune.json. Raises InputError."""
    if not path.name.endswith(_SUFFIX):
        raise InputError(path, f"is no file of {TOOL}: its name must end in {_SUFFIX}")
    match read_json(path, TOOL, infinite=True):
        case {"key": list(key), "configs_timings": [_, *_] as timings}:
            shape = shape_of(path, key, options)
            rows = tuple(Measurement(shape, *config_and_time(path, entry)) for entry in timings)
        case _:
            what = "lacks a proper 'key' or 'configs_timings': did Triton's autotuner write it?"
            raise InputError(path, what)
    kernel, origin = kernel_name(_kernel(path)), {"tool": TOOL, "function": _kernel(path)}
    device, timing = options.needed_device(path, TOOL), "Triton's do_bench, median"
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
