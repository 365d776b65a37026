"""generated/treegen.lock: what the modules were built from, and every figure that noise moves.

These stand apart from the modules, so that new measurements of an unchanged GPU do not change the modules.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from treegen import __version__
from treegen.core.errors import InputError
from treegen.core.files import digest, read_bytes
from treegen.core.problem import Problem
from treegen.core.spec import Spec
from treegen.core.table import Cells
from treegen.core.tree import depth, size
from treegen.crossval.choices import Quality
from treegen.update.basis import Basis, basis_of
from treegen.update.heuristic import DeviceHeuristic
from treegen.update.keep import TreeOrigin
from tuning_table.table import RUN, SCENARIOS, TIMES

LOCK = "treegen.lock"
MOST_JUMP = 10.0
"""From this factor on, times that all changed are taken for times in another unit."""

_PREVIOUS = "cut_off_after"
_ORIGIN = re.compile(f"{TreeOrigin.KEPT}|{TreeOrigin.FRESH}|{TreeOrigin.EDITED}: [0-9a-z, ]+")

Entries: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
"""The lock's entry for each module, by kernel and device."""


@dataclass(frozen=True)
class Lock:
    """The lock of the previous build."""

    heuristics: Entries = field(default_factory=dict)  # values may be anything: a person can edit the file
    # Entries of the build before, if the last build may have been cut off, for modules it did not replace.
    before: Entries | None = None
    folder: Path = Path()  # of the modules

    def entry(self, kernel: str, device: str) -> Mapping[str, Any]:
        """The entry of the module that is in the folder; empty if there is none."""
        recorded = self.heuristics.get((kernel, device), {})
        if self.before is None or recorded.get("module") == _digest_of(self.folder / kernel / f"{device}.py"):
            return recorded
        return self.before.get((kernel, device), {})

    def written(self, problem: Problem) -> str | None:
        """The SHA-256 of the device's module as it was written, if known."""
        digest_before = self.entry(problem.kernel.name, problem.device.key).get("module")
        return digest_before if isinstance(digest_before, str) else None

    def has_other_scenarios(self, problem: Problem) -> bool:
        """Return whether the previous table is known to have had other scenarios than the problem's table."""
        previous = self.entry(problem.kernel.name, problem.device.key).get("sha256")
        digest = previous.get(SCENARIOS) if isinstance(previous, dict) else None
        return digest is not None and digest != digests(problem.table.folder)[SCENARIOS]

    def basis(self, problem: Problem) -> Basis | None:
        """What the previous tree was fitted by; None if the lock does not say."""
        recorded = self.entry(problem.kernel.name, problem.device.key).get("fitted_by")
        return recorded if isinstance(recorded, dict) else None

    def best_time(self, problem: Problem) -> float | None:
        """The previous table's geometric mean of best times, in microseconds.

        None if it is unknown, or the scenarios are known to be others.
        """
        recorded = self.entry(problem.kernel.name, problem.device.key).get("best_us")
        known = isinstance(recorded, float) and recorded > 0 and not self.has_other_scenarios(problem)
        return recorded if known else None


def read_lock(folder: Path) -> Lock:
    """The lock in an output folder; an empty one if the file is missing or no lock."""
    try:
        content = json.loads(read_bytes(folder / LOCK))
        before = _entries(content[_PREVIOUS]) if _PREVIOUS in content else None
        return Lock(_entries(content["heuristics"]), before, folder)
    except (InputError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Lock()


def _entries(kernels: Any) -> Entries:
    return {
        (kernel, device): entry
        for kernel, devices in kernels.items()
        for device, entry in devices.items()
        if isinstance(entry, dict)
    }


def _digest_of(path: Path) -> str | None:
    try:
        return hashlib.sha256(read_bytes(path)).hexdigest()
    except InputError:
        return None


def interim_lock(text: str, previous: Lock) -> str:
    """The lock while modules are being replaced, made from a build's lock and the previous one.

    It has entries for the old and the new modules, so that the build after a killed one finds either.
    """
    content = json.loads(text)
    content[_PREVIOUS] = {
        kernel: {device: dict(previous.entry(kernel, device)) for device in devices}
        for kernel, devices in content["heuristics"].items()
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def lock_text(
    spec: Spec, heuristics: Sequence[DeviceHeuristic], files: Mapping[str, str], previous: Lock
) -> str:
    """The lock of a build. files: its other texts, by their path.

    previous: the previous lock, which alone knows the origin of a tree that is kept for an unchanged table.
    Its entry stays, so a second build in a row changes nothing.
    """
    root = spec.path.resolve().parent
    content: dict[str, Any] = {"treegen": __version__, "heuristics": {}}
    for heuristic in heuristics:
        kernel, device = heuristic.problem.kernel.name, heuristic.problem.device.key
        entry = _entry(heuristic, root, previous.entry(kernel, device))
        entry["module"] = digest(files[f"{kernel}/{device}.py"])
        content["heuristics"].setdefault(kernel, {})[device] = entry
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of a table."""
    names = (RUN, SCENARIOS, TIMES)
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def best_time(problem: Problem) -> float | None:
    """The geometric mean over scenarios of the best time in microseconds; None for a table of winners."""
    if problem.table.cells is Cells.WINNERS:
        return None
    times = problem.times()
    best = np.min(np.where(np.isfinite(times), times, np.inf), axis=1)
    return math.exp(math.fsum(np.log(best).tolist()) / len(best))


def _entry(heuristic: DeviceHeuristic, root: Path, previous: Mapping[str, Any]) -> dict[str, Any]:
    table = heuristic.problem.table
    sha256 = digests(table.folder)
    entry: dict[str, Any] = {
        "table": Path(os.path.relpath(table.folder, root)).as_posix(),
        "sha256": sha256,
        "cells": table.cells.value,
        "scenarios": len(table.scenarios),
        "left_out": heuristic.problem.left_out,
        "configs": len(table.configs),
        "tree": str(heuristic.chosen),
        "depth": depth(heuristic.tree),
        "leaves": size(heuristic.tree),
        "fitted_by": basis_of(heuristic.problem),
    }
    best_us = best_time(heuristic.problem)
    if best_us is not None:
        entry["best_us"] = float(f"{best_us:.4g}")
    origin = previous.get("tree")
    unchanged = heuristic.chosen.origin is TreeOrigin.KEPT and previous.get("sha256") == sha256
    if unchanged and isinstance(origin, str) and _ORIGIN.fullmatch(origin):
        entry["tree"] = origin
    if heuristic.evaluation is not None:
        # The classifier's figures are left out: they change with scikit-learn's version.
        entry["held_out"] = _figures(heuristic.evaluation.tree)
    return entry


def _figures(held_out: Quality) -> dict[str, float]:
    figures = {"agreement": round(held_out.agreement, 4)}
    if held_out.slowdown is not None:
        figures["slowdown"] = round(held_out.slowdown, 4)
        figures["untimed"] = round(held_out.untimed, 4)
    return figures
