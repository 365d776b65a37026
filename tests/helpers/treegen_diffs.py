"""Small projects with handmade rows, their comparison, and git repositories of them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treegen_builders import DEVICE, KERNEL, write_project

from treegen.core.heuristic import Heuristic, RegimeRows, Row, Split, StepTree
from treegen.core.spec import FALLBACK_DEVICE, Config
from treegen.emit.package import emit_package
from treegen.read.spec import read_spec
from treegen.review.diff.changes import Diff, ModuleChange, compare
from treegen.review.diff.snapshots import read_snapshot
from treegen.write.files import write_files
from treegen.write.lock import LOCK, stored

NARROW, MEDIUM, WIDE = (
    Config("plain", (("block", block), ("warps", warps))) for block, warps in ((16, 2), (64, 4), (128, 8))
)
"""The configs of `treegen_builders`; MEDIUM is the fallback."""


@dataclass(frozen=True)
class Ask:
    """A question `feature <= threshold` that leads to configs."""

    feature: str
    threshold: int
    low: Tree
    high: Tree


Tree = Config | Row | Ask


def heuristic(tree: Tree) -> Heuristic:
    """The default regime, with a row for each config of the tree."""
    rows: list[Row] = []

    def numbered(tree: Tree) -> StepTree:
        if isinstance(tree, Ask):
            return Split(tree.feature, tree.threshold, numbered(tree.low), numbered(tree.high))
        rows.append(tree if isinstance(tree, Row) else Row(tree))
        return len(rows) - 1

    found = numbered(tree)
    return Heuristic((RegimeRows("steps", found, tuple(rows)),))


BEST = Ask("area", 64, NARROW, WIDE)
"""The best rows for the times of `treegen_builders.planted`."""

_IDENTITY = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    **{f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
}


def write_modules(spec_path: Path, trees: Mapping[tuple[str, str], Tree | Heuristic]) -> None:
    """Write the output folder as a build that fitted these would."""
    spec = read_spec(spec_path)
    rows = {name: {FALLBACK_DEVICE: stored(Heuristic(()), kernel)} for name, kernel in spec.kernels.items()}
    modules = []
    for (name, key), tree in trees.items():
        kernel, found = spec.kernels[name], tree if isinstance(tree, Heuristic) else heuristic(tree)
        modules.append((kernel, spec.devices[key], found))
        rows[name][key] = stored(found, kernel)
    files = {**emit_package(spec, modules), LOCK: json.dumps({"rows": rows})}
    write_files(spec.output, files)


def project(folder: Path, tree: Tree = BEST, content: Mapping[str, Any] | None = None, **table: Any) -> Path:
    """A project whose module of KERNEL on DEVICE is `tree`; returns its folder."""
    write_modules(write_project(folder, content, **table), {(KERNEL, DEVICE): tree})
    return folder


def compared(old: Path | str, new: Path | str, spec: Path | None = None) -> Diff:
    with ExitStack() as stack:
        return compare(*(read_snapshot(str(name), spec, stack) for name in (old, new)), threshold=1.01)


def of_device(diff: Diff, device: str = DEVICE) -> ModuleChange:
    (found,) = (module for module in diff.modules if module.device == device)
    return found


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env={**os.environ, **_IDENTITY},
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=True,
    )
    return done.stdout.strip()


def commit(folder: Path, message: str = "a change") -> str:
    """Commit everything, in a new repository if there is none. Returns the commit."""
    if not (folder / ".git").exists():
        git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(folder, "rev-parse", "HEAD")
