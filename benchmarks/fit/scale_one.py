"""Measure one size, in a process that holds nothing else: `python -m benchmarks.fit.scale_one 1000 100`.

Prints one line of JSON. `benchmarks.fit.scale` starts one such process a size.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from benchmarks.fit import scale_model
from benchmarks.fit.scale_model import DEVICE, FEATURES, PARAMETER, PlantedModel
from treegen.build import fit_tree
from treegen.core.table import Table
from treegen.core.tree import Tree, choose, depth, leaves, size
from treegen.read.problem import build_problem, read_table
from tuning_table.writer import table_texts

FRESH = 20_000  # scenarios on which a tree is scored

Result = TypeVar("Result")


@dataclass(frozen=True)
class Measured:
    """Return the figures of one fit.

    They hold the seconds of each step (None for a skipped one), and the peak memory in GiB before the fit and
    of the whole process. They also hold the fitted tree's size and its geometric mean slowdown on fresh
    scenarios against the planted optimum, beside the slowdown of the best single config.
    """

    scenarios: int
    configs: int
    make_s: float
    write_s: float | None
    read_s: float | None
    problem_s: float
    fit_s: float
    table_gib: float
    problem_peak_gib: float
    peak_gib: float
    leaves: int
    depth: int
    distinct_configs: int
    slowdown: float
    single_best: float


def measure(count: int, configs: int, *, files: bool, seed: int = 0) -> Measured:
    """files: also write the table's files and read them."""
    planted = scale_model.model(configs, seed)
    make_s, table = _timed(lambda: scale_model.table(planted, count, seed))
    write_s, read_s = _files(table) if files else (None, None)
    kernel = scale_model.kernel()
    problem_s, problem = _timed(lambda: build_problem(kernel, DEVICE, table))
    problem_peak = _peak_gib()
    fit_s, tree = _timed(lambda: fit_tree(problem))
    return Measured(
        scenarios=count,
        configs=configs,
        make_s=make_s,
        write_s=write_s,
        read_s=read_s,
        problem_s=problem_s,
        fit_s=fit_s,
        table_gib=table.times.nbytes / 2**30,
        problem_peak_gib=problem_peak,
        peak_gib=_peak_gib(),
        leaves=size(tree),
        depth=depth(tree),
        distinct_configs=len({leaf.config for leaf, _ in leaves(tree)}),
        slowdown=slowdown(planted, tree, seed),
        single_best=_single_best(planted, seed),
    )


def slowdown(planted: PlantedModel, tree: Tree, seed: int) -> float:
    """The geometric mean on fresh scenarios, against the planted optimum."""
    features = _fresh(seed)
    points = (dict(zip(FEATURES, row, strict=True)) for row in features.tolist())
    chosen = [dict(choose(tree, point).parameters)[PARAMETER] for point in points]
    return float(np.exp(planted.excess(features, np.array(chosen)).mean()))


def _single_best(planted: PlantedModel, seed: int) -> float:
    features = _fresh(seed)
    count = np.bincount(planted.leaf(features), minlength=len(planted.effect))
    means = count @ (planted.effect - planted.effect.min(axis=1, keepdims=True)) / len(features)
    return float(np.exp(means.min()))


def _fresh(seed: int) -> scale_model.Ints:
    return scale_model.scenarios(FRESH, np.random.default_rng([seed, 2]))


def _files(table: Table) -> tuple[float, float]:
    """Seconds to write the table's files and to read them. Raises ValueError if they do not say the same."""
    with tempfile.TemporaryDirectory() as folder:
        write_s, _ = _timed(lambda: _write(table, Path(folder)))
        read_s, again = _timed(lambda: read_table(Path(folder)))
    if not np.array_equal(again.times, table.times, equal_nan=True):
        raise ValueError("the table was not read as it was written")
    return write_s, read_s


def _write(table: Table, folder: Path) -> None:
    run = {
        "format": 1,
        "kernel": table.kernel,
        "device": {"name": table.device_name, "arch": "synthetic"},
        **dict.fromkeys(("driver", "torch", "triton", "source_hash", "timing"), "none"),
        "date": "2026-01-01",
        "cells": str(table.cells),
        "features": list(table.feature_names),
        "configs": [{"id": c.id, "variant": c.variant, **c.parameters} for c in table.configs],
    }
    scenarios = [[name, *row] for name, row in zip(table.scenarios, table.features.tolist(), strict=True)]
    times = [
        [table.scenarios[scenario], repeat, *("" if cell != cell else cell for cell in row)]
        for scenario, repeat, row in zip(
            table.row_scenario.tolist(), table.row_repeat.tolist(), table.times.tolist(), strict=True
        )
    ]
    for name, text in table_texts(run, scenarios, times).items():
        (folder / name).write_text(text)


def _timed(action: Callable[[], Result]) -> tuple[float, Result]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def _peak_gib() -> float:
    """The most memory that this process ever held."""
    status = Path("/proc/self/status")
    if status.exists():  # Linux counts in ru_maxrss what the parent held when it started this process
        (peak,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(peak.split()[1]) * 1024 / 2**30
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    add: Any = parser.add_argument
    add("scenarios", type=int)
    add("configs", type=int)
    add("--files", action="store_true", help="also write the table's files and read them")
    add("--seed", type=int, default=0)
    args = parser.parse_args()
    print(json.dumps(asdict(measure(args.scenarios, args.configs, files=args.files, seed=args.seed))))


if __name__ == "__main__":
    main()
