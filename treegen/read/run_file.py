"""run.yaml of a measurement table: what was measured, on what, and how. Read strictly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from treegen.core.errors import shown
from treegen.core.names import is_config_id, problem_with_name
from treegen.core.table import Cells, TableConfig
from treegen.read.yaml_file import Fields, load

FORMAT = 1

_REQUIRED = ["format", "kernel", "device", "cells", "timing", "features", "configs"]
_OF_A_RUN = ["driver", "torch", "triton", "source_hash", "date"]
_COURSE = ["scenario_set", "seed", "strategy", "summary"]
_COUNTS = ["scenarios", "rows", "cells_measured", "cells_possible", "cells_failed"]
_NOISE = ["noise_median", "noise_p90", "noise_p99"]
_DEVICE = ["name", "arch", "multiprocessors", "memory_bytes", "cache_bytes"]
_LARGEST = 1 << 62


@dataclass(frozen=True)
class Run:
    """provenance: the whole file as plain data."""

    kernel: str
    device_name: str
    cells: Cells
    feature_names: tuple[str, ...]
    configs: tuple[TableConfig, ...]
    provenance: Mapping[str, Any]


def read_run(path: Path) -> Run:
    """The run.yaml at `path`. Raises InputError, naming the line."""
    run = load(path)
    run.only([*_REQUIRED, *_OF_A_RUN, *_COURSE, "origin"])
    if run.get_as("format", int) != FORMAT:
        raise run.error("format", f"must be {FORMAT}, the format this treegen reads")
    cells = _cells(run)
    features = _feature_names(run)
    configs = _configs(run)
    _check_provenance(run)
    device = run.get_as("device", Fields)
    device.only(_DEVICE)
    _count(device, "cache_bytes")
    name = device.get_as("name", str)
    kernel = run.get_as("kernel", str)
    return Run(kernel, name, cells, features, configs, MappingProxyType(run.plain()))


def _cells(run: Fields) -> Cells:
    word = run.get_as("cells", str)
    if word not in list(Cells):
        raise run.error("cells", f"must be one of {', '.join(Cells)}, not {shown(word)}")
    return Cells(word)


def _feature_names(run: Fields) -> tuple[str, ...]:
    names = run.names("features")
    for name in names:
        reason = problem_with_name(name)
        if reason is not None:
            raise run.error("features", f"{shown(name)} {reason}")
    if not names:
        raise run.error("features", "names no feature")
    return tuple(names)


def _check_provenance(run: Fields) -> None:
    """A run of our own states all of its circumstances; an imported one states its origin instead."""
    run.get_as("timing", (str, Fields))
    _check_course(run)
    if "origin" in run:
        told = [key for key in _COURSE if key in run]
        if told:
            raise run.error(told[0], "belongs to a run of our own; 'origin' says that the table was imported")
        origin = run.get_as("origin", Fields)
        if not 1 <= origin.get_as("evaluated_configs", int, 1) <= 1_000_000:
            raise origin.error("evaluated_configs", "must be between 1 and 1,000,000")
        return
    missing = [key for key in _OF_A_RUN if key not in run]
    if missing:
        raise run.error(None, f"lacks {', '.join(missing)} (or 'origin', if the table was imported)")


def _check_course(run: Fields) -> None:
    """What a run of our own may say of its course. All of it is optional."""
    for key in ("scenario_set", "strategy"):
        run.get_as(key, str, None)
    seed = run.get_as("seed", int, 0)
    if abs(seed) > _LARGEST:
        raise run.error("seed", "must be an integer within 62 bits")
    summary = run.get_as("summary", Fields, None)
    if summary is None:
        return
    summary.only(["seconds", *_COUNTS, *_NOISE, "finished", "failures"])
    _number(summary, "seconds", zero=False)
    for key in _COUNTS:
        _count(summary, key)
    for key in _NOISE:
        _number(summary, key, zero=True)
    summary.get_as("finished", bool, None)
    failures = summary.get_as("failures", Fields, None)
    for why in failures or ():
        _count(failures, why)


def _count(fields: Fields, key: str) -> None:
    if not 0 <= fields.get_as(key, int, 0) <= _LARGEST:
        raise fields.error(key, f"{shown(fields[key])} is no count")


def _number(fields: Fields, key: str, *, zero: bool) -> None:
    value = fields.get_as(key, (int, float), 1)
    if not 0 <= value < math.inf or (value == 0 and not zero):  # NaN is neither
        raise fields.error(key, f"must be {'0 or above' if zero else 'above 0'}, not {shown(value)}")


def _configs(run: Fields) -> tuple[TableConfig, ...]:
    entries = run.get_as("configs", list)
    configs: list[TableConfig] = []
    seen: set[str] = set()
    for position, entry in enumerate(entries):
        if not isinstance(entry, Fields):
            raise run.error("configs", f"entry {position + 1} is not a mapping")
        config = _config(entry)
        if config.id in seen:
            raise entry.error("id", f"{shown(config.id)} names two configs")
        if configs and set(config.parameters) != set(configs[0].parameters):
            raise entry.error(None, f"has other parameters than {configs[0].id}")
        if configs and (config.variant is None) != (configs[0].variant is None):
            raise entry.error(None, "all configs or none must name their variant")
        seen.add(config.id)
        configs.append(config)
    if not configs:
        raise run.error("configs", "names no config")
    return tuple(configs)


def _config(entry: Fields) -> TableConfig:
    config_id = entry.get_as("id", str)
    if not is_config_id(config_id):
        raise entry.error("id", f"{shown(config_id)} may hold letters, digits and _ . = - only")
    parameters = {}
    for name in entry:
        if name in ("id", "variant"):
            continue
        if problem_with_name(name) is not None:
            raise entry.error(None, f"parameter {shown(name)} {problem_with_name(name)}")
        parameters[name] = entry.get_as(name, int)
        if not 0 <= parameters[name] < 1 << 31:
            raise entry.error(name, f"{shown(parameters[name])} is no launch parameter")
    return TableConfig(config_id, entry.get_as("variant", str, None), MappingProxyType(parameters))
