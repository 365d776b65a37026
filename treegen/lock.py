"""generated/treegen.lock: what the modules were built from, and every figure that noise may move.

Kept apart from the modules, so that a GPU that was measured again and behaves the same leaves them as
they are.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from treegen import __version__
from treegen.evaluate import HeldOut
from treegen.heuristic import Heuristic
from treegen.spec import Spec
from treegen.tablefile import RUN, SCENARIOS, TIMES
from treegen.tree import depth, size

LOCK = "treegen.lock"


def lock_text(spec: Spec, heuristics: Sequence[Heuristic]) -> str:
    root = spec.path.resolve().parent
    content: dict[str, Any] = {"treegen": __version__, "heuristics": {}}
    for heuristic in heuristics:
        kernel, device = heuristic.problem.kernel.name, heuristic.problem.device.key
        content["heuristics"].setdefault(kernel, {})[device] = _entry(heuristic, root)
    return json.dumps(content, indent=2, sort_keys=True) + "\n"


def _entry(heuristic: Heuristic, root: Path) -> dict[str, Any]:
    table = heuristic.problem.table
    entry: dict[str, Any] = {
        "table": Path(os.path.relpath(table.folder, root)).as_posix(),
        "sha256": {name: _sha256(table.folder / name) for name in (RUN, SCENARIOS, TIMES)},
        "cells": table.cells.value,
        "scenarios": len(table.scenarios),
        "left_out": heuristic.problem.left_out,
        "configs": len(table.configs),
        "depth": depth(heuristic.tree),
        "leaves": size(heuristic.tree),
    }
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


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
