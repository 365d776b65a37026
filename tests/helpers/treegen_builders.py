"""Small valid specs, tables and projects to compile, to damage and to compare.

`spec()` and `run()` return fresh nested dicts that a test changes before it writes them, so that each test
shows only what is special about its input.
"""

import contextlib
import csv
import importlib
import io
import itertools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from programs import REPOSITORY as REPOSITORY

from treegen.core.errors import InputError
from treegen.core.heuristic import Heuristic, StepTree
from treegen.core.problem import Problem
from treegen.core.spec import Config, DeviceSpec, KernelSpec
from treegen.emit.package import emit_package
from treegen.fit.fit import fit
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec

KERNEL, DEVICE, MI300X = "scale", "nvidia_h100", "amd_mi300x"
FEATURES = ("rows", "columns", "heads")
NARROW, MEDIUM, WIDE = (
    {"id": "narrow", "variant": "plain", "block": 16, "warps": 2},
    {"id": "medium", "variant": "plain", "block": 64, "warps": 4},
    {"id": "wide", "variant": "plain", "block": 128, "warps": 8},
)
CONFIGS = (NARROW, MEDIUM, WIDE)
SIDES = (1, 8, 64, 512)
Cell = float | int | str
Row = tuple[int, int, int]


def spec(devices: Mapping[str, Any] | None = None, **kernel: Any) -> dict[str, Any]:
    """A spec of one kernel and one device; `kernel` replaces sections of the kernel.

    devices: further ones, whose modules are compiled from the first one's table.
    """
    devices = devices or {}
    sections: dict[str, Any] = {
        "features": list(FEATURES),
        "constants": ["heads"],
        "derived": {"area": "rows * columns"},
        "config": {"variants": ["plain"], "parameters": {"block": "B", "warps": "W"}},
        "constraints": ["block >= heads"],
        "fallback": {"variant": "plain", "block": 64, "warps": 4},
        "tree": {"max_depth": 4, "max_rows": 8},
        "tables": {DEVICE: "tables/h100", **dict.fromkeys(devices, as_h100())},
    }
    device: dict[str, Any] = {"names": ["NVIDIA H100"], "arch": "sm_90", "vendor": "nvidia"}
    device["limits"] = {"shared_memory": 232448}
    return {
        "format": 1,
        "output": "generated",
        "devices": {DEVICE: device, **devices},
        "kernels": {KERNEL: {**sections, **kernel}},
    }


def as_h100() -> dict[str, str]:
    """The entry of a device whose module is compiled from the H100's table."""
    return {"folder": "tables/h100", "measured_on": "NVIDIA H100 80GB HBM3"}


def run(configs: Any = CONFIGS, **changes: Any) -> dict[str, Any]:
    """run.yaml of a tuning run of this project."""
    return {
        "format": 1,
        "kernel": KERNEL,
        "device": {"name": "NVIDIA H100 80GB HBM3", "arch": "sm_90"},
        "driver": "550.54",
        "torch": "2.11.0",
        "triton": "3.6.0",
        "source_hash": "0123abcd",
        "date": "2026-01-31",
        "cells": "measured",
        "timing": "CUDA graph replay, cold L2",
        "features": list(FEATURES),
        "configs": list(configs) if isinstance(configs, tuple) else configs,
        **changes,
    }


def grid() -> list[Row]:
    """Nine shapes: rows and columns in three sizes each, two heads (few enough to fit without folds)."""
    return [(rows, columns, 2) for rows in SIDES[:3] for columns in SIDES[:3]]


def planted(row: Row) -> list[float]:
    """Times of CONFIGS: narrow is best up to an area of 64, wide above."""
    area = row[0] * row[1]
    return [10.0, 15.0, 30.0] if area <= 64 else [40.0, 25.0, 20.0]


def time_rows(
    shapes: Sequence[Row], times: Callable[[Row], Sequence[Cell]] = planted, repeats: int = 2
) -> list[list[Cell]]:
    """Every scenario once, then every scenario again: repeats are taken at different times."""
    places = range(1, repeats + 1), enumerate(shapes, 1)
    return [[f"s{i:03}", repeat, *times(shape)] for repeat, (i, shape) in itertools.product(*places)]


def csv_text(header: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *rows])
    return out.getvalue()


class _Plain(yaml.SafeDumper):
    """Prints an object that appears twice twice, not as an alias."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def yaml_text(content: Mapping[str, Any]) -> str:
    """One key a line, so that a test can find the line that an error must name."""
    return yaml.dump(dict(content), Dumper=_Plain, sort_keys=False, default_flow_style=False, width=1000)


def golden(path: Path, text: str) -> str:
    """What a golden file holds; UPDATE_GOLDEN=1 writes this text first."""
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(text)
    return path.read_text()


def line_of(text: str, needle: str, occurrence: int = 1) -> int:
    lines = [number for number, line in enumerate(text.splitlines(), 1) if needle in line]
    return lines[occurrence - 1]


def write_table(
    folder: Path,
    *,
    shapes: Sequence[Row] | None = None,
    times: Callable[[Row], Sequence[Cell]] = planted,
    rows: Sequence[Sequence[Cell]] | None = None,
    **run_changes: Any,
) -> Path:
    """A table folder; `rows` replaces the rows of times.csv that `times` would give."""
    shapes = grid() if shapes is None else list(shapes)
    content = run(**run_changes)
    ids = [config["id"] for config in content["configs"]]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.yaml").write_text(yaml_text(content))
    scenarios = [[f"s{number:03}", *shape] for number, shape in enumerate(shapes, 1)]
    rows = time_rows(shapes, times) if rows is None else rows
    (folder / "scenarios.csv").write_text(csv_text(["scenario", *content["features"]], scenarios))
    (folder / "times.csv").write_text(csv_text(["scenario", "repeat", *ids], rows))
    return folder


def winners(row: Row) -> list[Cell]:
    """`planted`, with only the fastest config's time kept."""
    times = planted(row)
    return [time if time == min(times) else "" for time in times]


def write_winners(folder: Path, **changes: Any) -> Path:
    """A table of winners, as an importer writes it."""
    shapes = changes.pop("shapes", None) or grid()
    rows = time_rows(shapes, changes.pop("times", winners), repeats=1)
    return write_table(folder, shapes=shapes, rows=rows, cells="winners", **changes)


def write_spec(folder: Path, content: Mapping[str, Any] | str | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "treegen.yaml"
    text = content if isinstance(content, str) else yaml_text(spec() if content is None else content)
    path.write_text(text)
    return path


def write_project(folder: Path, content: Mapping[str, Any] | str | None = None, **table: Any) -> Path:
    """A spec with its measured table; returns the path of the spec."""
    write_table(folder / "tables/h100", **table)
    return write_spec(folder, content)


def write_two_devices(folder: Path, kernel: Mapping[str, Any], **table: Any) -> Path:
    """A project of a measured H100 and a MI300X (`MI300X`) of which only the winners are known."""
    content = spec(tables={DEVICE: "tables/h100", MI300X: "tables/mi300x"}, **kernel)
    mi300x = {"names": ["AMD Instinct MI300X"], "vendor": "amd", "limits": {"shared_memory": 65536}}
    content["devices"][MI300X] = mi300x
    shapes = table.get("shapes")
    write_winners(folder / "tables/mi300x", shapes=shapes, device={"name": "AMD Instinct MI300X"})
    return write_project(folder, content, **table)


def problem(folder: Path, sections: Mapping[str, Any] | None = None, **table: Any) -> Problem:
    """The problem of a measured table under a spec whose kernel has these `sections` changed."""
    read = read_spec(write_project(folder, spec(**(sections or {})), **table))
    return build_problem(read.kernels[KERNEL], read.devices[DEVICE], read_table(folder / "tables/h100"))


def device_and_kernel(folder: Path, **kernel: Any) -> tuple[DeviceSpec, KernelSpec]:
    read = read_spec(write_spec(folder, spec(**kernel)))
    return read.devices[DEVICE], read.kernels[KERNEL]


def build(spec_path: Path, *options: str | Path) -> int:
    """`treegen build` in this process."""
    from treegen.cli.main import main  # the tests of the core need no command

    return main(["build", "--spec", str(spec_path), *map(str, options)])


def error_of(action: Callable[..., object], *arguments: object) -> str:
    """The message of the InputError that `action` must raise."""
    try:
        action(*arguments)
    except InputError as error:
        return str(error)
    raise AssertionError("was accepted")


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every path below `folder` with its bytes (None for a folder): to compare before and after."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@contextlib.contextmanager
def imported(folder: Path, package: str = "generated") -> Iterator[Any]:
    """The package that a build wrote into `folder`, imported under its own name and forgotten afterwards."""
    outer = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == package}
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        yield importlib.import_module(package)
    finally:
        sys.path.remove(str(folder))
        sys.dont_write_bytecode = writes
        for name in [name for name in sys.modules if name.split(".")[0] == package]:
            del sys.modules[name]
        sys.modules.update(outer)


def write_package(spec_path: Path) -> list[tuple[KernelSpec, DeviceSpec, Heuristic]]:
    """Fit every table of a spec and write its package, with no look at what is there. Returns its modules."""
    read = read_spec(spec_path)
    problems = [
        build_problem(kernel, read.devices[key], read_table(folder))
        for kernel in read.kernels.values()
        for key, folder in kernel.tables.items()
    ]
    modules = [(made.kernel, made.device, fit(made)) for made in problems]
    for name, text in emit_package(read, modules).items():
        (read.output / name).parent.mkdir(parents=True, exist_ok=True)
        (read.output / name).write_text(text)
    return modules


def committed(kernel: str, device: str, folder: str | None = None) -> Problem:
    """The problem of a committed table, seen through the committed spec."""
    read = read_spec(REPOSITORY / "treegen.yaml")
    known = read.kernels[kernel]
    path = known.tables[device] if folder is None else REPOSITORY / "tuning_data" / kernel / folder
    return build_problem(known, read.devices[device], read_table(path))


def paths(tree: StepTree, path: tuple[str, ...] = ()) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Each row's number with the answers that lead there, such as `max_seq_len <= 512`."""
    if isinstance(tree, int):
        yield tree, path
        return
    yield from paths(tree.low, (*path, f"{tree.feature} <= {tree.threshold}"))
    yield from paths(tree.high, (*path, f"{tree.feature} > {tree.threshold}"))


def as_config(printed: Any, kernel: KernelSpec) -> Config:
    """The core's config of a printed module's."""
    return Config(printed.variant, tuple((name, getattr(printed, name)) for name in kernel.parameters))
