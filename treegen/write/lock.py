"""treegen.lock: what the modules were built from, the figures that noise moves, and the rows as data.

Figures stand apart from the modules, so that new measurements of an unchanged GPU do not change the modules.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from treegen.core.errors import InputError, one_line, shown
from treegen.core.files import digest, read_bytes, read_text, try_path
from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split, StepTree
from treegen.core.problem import Problem
from treegen.core.spec import FALLBACK_DEVICE, Config, KernelSpec, Spec
from treegen.core.table import Cells
from treegen.crossval.folds import DeviceHeuristic, HeldOut
from treegen.fit.fit import Origin
from tuning_table import __version__
from tuning_table.table import RUN, SCENARIOS, TIMES

LOCK = "treegen.lock"
MOST_JUMP = 10.0
"""From this factor on, times that all changed are taken for times in another unit."""
_DEEPEST = 32  # questions of a tree


@dataclass(frozen=True)
class Lock:
    """The lock of the previous build. People can edit the file, so any part may be anything."""

    folder: Path = Path()  # of the modules
    content: Any = None

    @property
    def is_current(self) -> bool:
        """Whether this version of treegen wrote it."""
        return bool(_inside(self.content, "treegen") == __version__)

    def entry(self, kernel: str, device: str) -> Mapping[str, Any]:
        """What is recorded of a module; empty if nothing is."""
        entry = _inside(self.content, "heuristics", kernel, device)
        return entry if isinstance(entry, dict) else {}

    def stored(self, kernel: KernelSpec, device: str) -> Heuristic:
        """What a module was printed from. Raises InputError."""
        content = _inside(self.content, "rows", kernel.name, device)
        what = f"rows of {kernel.name} on {device}"
        if content is None:
            why = "no such file" if self.content is None else f"stores no {what}, as that of an older treegen"
            raise InputError(self.folder / LOCK, f"{why}; build anew")
        try:
            return heuristic_of(content, kernel)
        except ValueError as error:
            raise InputError(self.folder / LOCK, f"the {what} cannot be read: {error}") from None

    def previous(self, problem: Problem) -> Heuristic | str | None:
        """What a device's module was printed from; None if there is no module, or why it cannot be kept."""
        kernel, device = problem.kernel, problem.device.key
        path = self.folder / kernel.name / f"{device}.py"
        try:
            if not try_path(path, Path.exists):
                return None
            heuristic, written = self.stored(kernel, device), self.entry(kernel.name, device).get("module")
            edited = written != digest(read_bytes(path))
            return one_line(f"{path}: is not what the last build wrote") if edited else heuristic
        except InputError as error:
            return str(error)

    def best_time(self, problem: Problem) -> float | None:
        """`best_time` of the previous table; None if it is unknown, or known to be of other scenarios."""
        entry = self.entry(problem.kernel.name, problem.device.key)
        recorded, scenarios = entry.get("best_us"), _inside(entry, "sha256", SCENARIOS)
        same = scenarios in (None, digests(problem.table.folder)[SCENARIOS])
        return recorded if isinstance(recorded, float) and recorded > 0 and same else None


def _inside(content: Any, *keys: str) -> Any:
    for key in keys:
        content = content.get(key) if isinstance(content, dict) else None
    return content


def read_lock(folder: Path) -> Lock:
    """The lock in an output folder; one without content if there is no such file.

    Raises InputError for one that is no JSON, as after a merge with conflicts: a build would forget what it
    keeps.
    """
    path = folder / LOCK
    if not try_path(path, Path.exists):
        return Lock(folder)
    text = read_text(path)
    try:
        return Lock(folder, json.loads(text))
    except (ValueError, RecursionError) as error:
        lines = list(enumerate(text.splitlines(), 1))
        marker = next((n for n, line in lines if line.startswith(("<<<<<<< ", ">>>>>>> "))), None)
        why = f"is no JSON: {error}" if marker is None else f"line {marker} is a conflict marker of a merge"
        what = "take the file of one side and build again, or delete it to fit everything anew"
        raise InputError(path, f"{why}; {what}") from None


def lock_text(
    spec: Spec, heuristics: Sequence[DeviceHeuristic], files: Mapping[str, str], previous: Lock
) -> str:
    """The lock of a build. files: its other texts, by their path.

    previous: the previous lock, which alone knows the origin of what is kept for an unchanged table.
    Its entry stays, so a second build in a row changes nothing.
    """
    entries: dict[str, dict[str, Any]] = {}
    rows = {name: {FALLBACK_DEVICE: stored(Heuristic(()), kernel)} for name, kernel in spec.kernels.items()}
    for built in heuristics:
        kernel, device = built.problem.kernel, built.problem.device.key
        entry = _entry(built, spec.path.resolve().parent, previous.entry(kernel.name, device))
        entry["module"] = digest(files[f"{kernel.name}/{device}.py"])
        entries.setdefault(kernel.name, {})[device] = entry
        rows[kernel.name][device] = stored(built.heuristic, kernel)
    content = {"treegen": __version__, "heuristics": entries, "rows": rows}
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of a table."""
    return {name: digest((folder / name).read_bytes()) for name in (RUN, SCENARIOS, TIMES)}


def best_time(problem: Problem) -> float | None:
    """The geometric mean over scenarios of the best time in microseconds; None for a table of winners."""
    if problem.table.cells is Cells.WINNERS:
        return None
    times = problem.times()
    best = np.min(np.where(np.isfinite(times), times, np.inf), axis=1)
    return math.exp(math.fsum(np.log(best).tolist()) / len(best))


def _entry(heuristic: DeviceHeuristic, root: Path, previous: Mapping[str, Any]) -> dict[str, Any]:
    table, evaluation = heuristic.problem.table, heuristic.evaluation
    sha256, origin = digests(table.folder), previous.get("origin")
    unchanged = heuristic.origin is Origin.KEPT and previous.get("sha256") == sha256
    entry: dict[str, Any] = {
        "table": Path(os.path.relpath(table.folder, root)).as_posix(),
        "sha256": sha256,
        "cells": table.cells.value,
        "scenarios": len(table.scenarios),
        "left_out": heuristic.problem.left_out,
        "configs": len(table.configs),
        "origin": origin if unchanged and origin in tuple(Origin) else str(heuristic.origin),
        "rows": sum(len(regime.rows) for regime in heuristic.heuristic.regimes),
    }
    best_us = best_time(heuristic.problem)
    if best_us is not None:
        entry["best_us"] = float(f"{best_us:.4g}")
    if evaluation is not None:  # without the classifier's figures, which change with scikit-learn's version
        entry["held_out"] = _figures(evaluation.folds)
        if evaluation.groups is not None:
            entry["groups_held_out"] = _figures(evaluation.groups)
    return entry


def _figures(held_out: HeldOut) -> dict[str, float]:
    figures = {"agreement": round(held_out.quality.agreement, 4)}
    if held_out.quality.slowdown is not None:
        figures["slowdown"] = round(held_out.quality.slowdown, 4)
        figures["error"] = round(held_out.error, 4)
        figures["untimed"] = round(held_out.quality.untimed, 4)
    return figures


def stored(heuristic: Heuristic, kernel: KernelSpec) -> dict[str, Any]:
    """A heuristic as plain data; `heuristic_of` is its inverse."""
    regimes = [
        {"name": regime.name, "tree": list(_lines(regime.tree)), "rows": [_row(row) for row in regime.rows]}
        for regime in heuristic.regimes
    ]
    return {"parameters": list(kernel.parameters), "regimes": regimes}


def _lines(tree: StepTree) -> Iterator[str]:
    if isinstance(tree, Split):
        yield f"{tree.feature} <= {tree.threshold}"
        yield from _lines(tree.low)
        yield from _lines(tree.high)
    else:
        yield f"row {tree}"


def _row(row: Row) -> dict[str, Any]:
    others = {name: _config(config) for name, config in row.others.items()}
    return {"config": _config(row.config), "others": others, "then": [_config(config) for config in row.then]}


def _config(config: Config) -> str:
    return " ".join([config.variant, *(str(value) for _, value in config.parameters)])


def heuristic_of(content: Any, kernel: KernelSpec) -> Heuristic:
    """The stored heuristic. Raises ValueError for anything that is no heuristic of this kernel's configs."""
    match content:
        case {"parameters": list(names), "regimes": list(regimes)}:
            return Heuristic(tuple(_regime(regime, names, kernel) for regime in regimes))
    raise ValueError("it must have parameters and regimes")


def _regime(content: Any, names: Sequence[Any], kernel: KernelSpec) -> RegimeRows:
    match content:
        case {"name": str(name), "tree": list(lines), "rows": list(rows)} if rows:
            left = iter(lines)
            tree = _tree(left, len(rows), 0)
            if next(left, None) is not None:
                raise ValueError(f"the tree of {shown(name)} has lines that no question leads to")
            return RegimeRows(name, tree, tuple(_read_row(row, names, kernel) for row in rows))
    raise ValueError(f"{shown(content)} is no regime with a name, a tree and rows")


def _tree(lines: Iterator[Any], rows: int, depth: int) -> StepTree:
    line = str(next(lines, "the end"))
    match line.split(" "):
        case ["row", number] if number.isdecimal() and int(number) < rows:
            return int(number)
        case [feature, "<=", threshold] if feature.isidentifier() and depth < _DEEPEST:
            low, high = (_tree(lines, rows, depth + 1) for _ in range(2))
            return Split(feature, int(threshold), low, high)
    raise ValueError(f"{shown(line)} is no question and no row")


def _read_row(content: Any, names: Sequence[Any], kernel: KernelSpec) -> Row:
    match content:
        case {"config": config, "others": dict(others), "then": list(then)}:
            own, *then = (_read_config(text, names, kernel) for text in (config, *then))
            by_class = {str(name): _read_config(other, names, kernel) for name, other in others.items()}
            return Row(own, by_class, tuple(then))
    raise ValueError(f"{shown(content)} is no row")


def _read_config(text: Any, names: Sequence[Any], kernel: KernelSpec) -> Config:
    """A config; parameters that the spec has gained since have their default."""
    match str(text).split(" "):
        case [variant, *values] if variant in kernel.variants and len(values) == len(names):
            given = tuple((str(name), int(value)) for name, value in zip(names, values, strict=True))
            config = kernel.own(Config(variant, given))
            known = [name for name, _ in config.parameters]
            if known == [*kernel.parameters] and {name for name, _ in given} <= {*known}:
                return config
    raise ValueError(f"{shown(text)} is no config of {kernel.name}")
