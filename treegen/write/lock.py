"""generated/treegen.lock: what the modules were built from, and every figure that noise may move.

Kept apart from the modules, so that a GPU that was measured again and behaves the same leaves them as
they are.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from treegen import __version__
from treegen.core.errors import InputError
from treegen.core.files import digest, read_bytes
from treegen.core.problem import Problem
from treegen.core.spec import Spec
from treegen.core.tree import depth, size
from treegen.crossval.evaluate import HeldOut
from treegen.update.heuristic import Heuristic
from treegen.update.keep import How
from tuning_table.table import RUN, SCENARIOS, TIMES

LOCK = "treegen.lock"
_BEFORE = "cut_off_after"
_HOW = re.compile(f"{How.KEPT}|{How.FRESH}|{How.EDITED}: [0-9a-z, ]+")


Entries: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
"""What a lock says of each module, by kernel and device."""


@dataclass(frozen=True)
class Locked:
    """What yesterday's lock says. heuristics: entries by kernel and device, whatever they hold.

    before: those of the build before, if the last one may have been cut off: they hold for modules that it
    did not reach. folder: where the modules are.
    """

    heuristics: Entries = field(default_factory=dict)
    before: Entries | None = None
    folder: Path = Path()

    def entry(self, problem: Problem) -> Mapping[str, Any]:
        return self.of(problem.kernel.name, problem.device.key)

    def of(self, kernel: str, device: str) -> Mapping[str, Any]:
        """The entry of the module that is there."""
        found = self.heuristics.get((kernel, device), {})
        if self.before is None or found.get("module") == _digest_of(self.folder / kernel / f"{device}.py"):
            return found
        return self.before.get((kernel, device), {})

    def written(self, problem: Problem) -> str | None:
        """The SHA-256 of the module that was written, if the lock tells."""
        found = self.entry(problem).get("module")
        return found if isinstance(found, str) else None

    def has_other_scenarios(self, problem: Problem) -> bool:
        """Whether yesterday's table is known to have held other scenarios than the problem's table."""
        before = self.entry(problem).get("sha256")
        digest = before.get(SCENARIOS) if isinstance(before, dict) else None
        return digest is not None and digest != digests(problem.table.folder)[SCENARIOS]


def read_lock(folder: Path) -> Locked:
    """The lock in an output folder. What is missing or no lock says nothing; it never fails."""
    try:
        content = json.loads(read_bytes(folder / LOCK))
        before = _entries(content[_BEFORE]) if _BEFORE in content else None
        return Locked(_entries(content["heuristics"]), before, folder)
    except (InputError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Locked()


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


def transitional(text: str, before: Locked) -> str:
    """The lock that stands while a build's modules take their places, made from the one that will. It knows
    both the old and the new ones, so that the next build finds yesterday's trees even if this is cut off."""
    content = json.loads(text)
    content[_BEFORE] = {
        kernel: {device: dict(before.of(kernel, device)) for device in devices}
        for kernel, devices in content["heuristics"].items()
    }
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def lock_text(
    spec: Spec, heuristics: Sequence[Heuristic], modules: Mapping[tuple[str, str], str], before: Locked
) -> str:
    """The lock of a build. modules: texts by kernel and device. before: yesterday's, which alone knows how a
    tree came about that is kept as it is for the same table; so a build after a build changes nothing.
    """
    root = spec.path.resolve().parent
    content: dict[str, Any] = {"treegen": __version__, "heuristics": {}}
    for heuristic in heuristics:
        kernel, device = heuristic.problem.kernel.name, heuristic.problem.device.key
        entry = _entry(heuristic, root, before.entry(heuristic.problem))
        entry["module"] = digest(modules[kernel, device])
        content["heuristics"].setdefault(kernel, {})[device] = entry
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file of a table."""
    names = (RUN, SCENARIOS, TIMES)
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}


def _entry(heuristic: Heuristic, root: Path, before: Mapping[str, Any]) -> dict[str, Any]:
    table = heuristic.problem.table
    sha256 = digests(table.folder)
    entry: dict[str, Any] = {
        "table": Path(os.path.relpath(table.folder, root)).as_posix(),
        "sha256": sha256,
        "cells": table.cells.value,
        "scenarios": len(table.scenarios),
        "left_out": heuristic.problem.left_out,
        "configs": len(table.configs),
        "tree": str(heuristic.kept),
        "depth": depth(heuristic.tree),
        "leaves": size(heuristic.tree),
    }
    was = before.get("tree")
    same = heuristic.kept.how is How.KEPT and before.get("sha256") == sha256
    if same and isinstance(was, str) and _HOW.fullmatch(was):
        entry["tree"] = was
    if heuristic.evaluation is not None:
        # The classifier's figures stay out: they move with scikit-learn's version.
        entry["held_out"] = _figures(heuristic.evaluation.tree)
    return entry


def _figures(held_out: HeldOut) -> dict[str, float]:
    figures = {"agreement": round(held_out.agreement, 4)}
    if held_out.slowdown is not None:
        figures["slowdown"] = round(held_out.slowdown, 4)
        figures["untimed"] = round(held_out.untimed, 4)
    return figures
