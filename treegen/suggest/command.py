"""treegen suggest: search derived features, and print them for the spec."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from treegen.core.errors import InputError, one_line
from treegen.core.problem import Problem
from treegen.core.spec import Spec
from treegen.fit.significance import copies
from treegen.read.build_problem import spec_problem
from treegen.read.spec_file import find_spec, read_spec
from treegen.read.table_file import read_table
from treegen.suggest.selection import Suggestions, suggest

_FEWEST = 10  # scenarios with different features of a table
_NOTE = (
    "wins: what trees lose without the feature, held out, +- two standard errors; one is enough. "
    "Lines to keep go into the spec, and their names into `split_on` if the kernel has it. "
    "greedy: trees of greedy growth, held out; the figures flatter, as features were selected by them. "
    "`treegen build` prints the held-out figure of the whole fit."
)


def run(spec_path: Path | None, kernel: str | None, device: str | None, most: int, *, raw: bool) -> None:
    """Print suggestions for each selected kernel. Raises InputError.

    raw: ignore the derived features of the spec.
    """
    if not 1 <= most <= 32:
        raise InputError(f"--most {most}", "must be from 1 to 32")
    for name, problems in _selected(read_spec(find_spec(spec_path)), kernel, device):
        if not problems:
            print(f"{name}: no table of at least {_FEWEST} different scenarios", flush=True)
            continue
        if raw:
            problems = [without_derived(problem) for problem in problems]
        devices = ", ".join(problem.device.key for problem in problems)
        print(one_line(f"{name} on {devices}"), flush=True)
        for line in _lines(suggest(problems, most)):
            print(one_line(line), flush=True)
    print(_NOTE)


def _selected(spec: Spec, kernel: str | None, device: str | None) -> list[tuple[str, list[Problem]]]:
    """The kernels with a table, and the problems of their tables that have enough scenarios."""
    selected = []
    for known in spec.selected(kernel):
        folders: dict[Path, str] = {}
        for key, folder in known.tables.items():
            if device in (None, key):
                folders.setdefault(folder, key)
        problems = [
            spec_problem(known, spec.devices[key], read_table(folder)) for folder, key in folders.items()
        ]
        if problems:
            enough = [p for p in problems if int(copies(p.features).max()) + 1 >= _FEWEST]
            selected.append((known.name, enough))
    if not any(problems for _, problems in selected):
        raise InputError(spec.path, f"selects no table of at least {_FEWEST} different scenarios")
    return selected


def without_derived(problem: Problem) -> Problem:
    """The problem as a spec that declares no derived feature makes it. Raises InputError if none is raw."""
    raw = tuple(name for name in problem.names if name in problem.kernel.features)
    if not raw:
        raise InputError(problem.table.folder, "holds no raw feature")
    features = np.stack([problem.column(name) for name in raw], axis=1)
    return replace(problem, names=raw, split_on=raw, features=features)


def _lines(found: Suggestions) -> Iterator[str]:
    if not found.found:
        yield f"  greedy {found.before:.4f} on {len(found.features)} features; nothing helps"
        return
    count = len(found.features)
    yield f"  greedy {found.before:.4f} on {count} features, {found.after:.4f} with {len(found.found)} more:"
    yield "    derived:"
    for one in found.found:
        yield f"      {one.name}: {one.text}  # wins {math.expm1(one.wins):.2%} +- {2 * one.error:.2%}"
