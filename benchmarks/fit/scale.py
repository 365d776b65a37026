"""Measure the time and memory of fitting large tables: `python -m benchmarks.fit.scale --out results/`.

Tables are synthetic (`scale_model` declares them), so that each tree can be compared with the planted one.
Every size is measured in a process of its own (`scale_one`). Needs no GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.environment import stop, write_atomically
from benchmarks.fit import scale_plots

SIZES = "1000x100,3000x100,10000x200,30000x300,100000x500"
FILES = 2_000_000  # up to so many cells the table's files are written and read, too

Record = dict[str, Any]

COLUMNS = (
    ("scenarios", "scenarios", "{:,}"),
    ("configs", "configs", "{:,}"),
    ("write s", "write_s", "{:.2f}"),
    ("read s", "read_s", "{:.2f}"),
    ("problem s", "problem_s", "{:.2f}"),
    ("fit s", "fit_s", "{:.2f}"),
    ("times GiB", "table_gib", "{:.2f}"),
    ("peak GiB", "peak_gib", "{:.2f}"),
    ("leaves", "leaves", "{}"),
    ("slowdown", "slowdown", "{:.4f}"),
    ("single best", "single_best", "{:.4f}"),
)


def sizes_from(text: str) -> list[tuple[int, int]]:
    """Scenarios and configs of each size in `1000x100,3000x100`. Raises ValueError."""
    sizes = [tuple(map(int, part.split("x"))) for part in text.split(",")]
    if any(len(size) != 2 or min(size) < 2 for size in sizes):
        raise ValueError(text)
    return [(size[0], size[1]) for size in sizes]


def measured(scenarios: int, configs: int, seed: int) -> Record:
    """One size, measured in a fresh process. Raises subprocess.CalledProcessError."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.fit.scale_one",
        str(scenarios),
        str(configs),
        "--seed",
        str(seed),
    ]
    if scenarios * configs <= FILES:
        command.append("--files")
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    record: Record = json.loads(done.stdout)
    return record


def line(record: Record) -> str:
    cells = ["-" if record[key] is None else shape.format(record[key]) for _, key, shape in COLUMNS]
    return "  ".join(cell.rjust(max(9, len(name))) for cell, (name, _, _) in zip(cells, COLUMNS, strict=True))


def facts() -> dict[str, str | int]:
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def write(out: Path, records: Sequence[Record], environment: dict[str, str | int]) -> str:
    """Write fit_scale.json and draw it; says what is there now."""
    source = out / "fit_scale.json"
    data = {"environment": environment, "results": list(records)}
    write_atomically(source, json.dumps(data, indent=1, allow_nan=False) + "\n")
    try:
        return f"wrote {source} {' '.join(map(str, scale_plots.draw(source)))}"
    except ImportError:
        later = "python -m benchmarks.fit.scale_plots draws it later"
        return f"wrote {source}; without matplotlib no plot ({later})"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="benchmarks.fit.scale", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--sizes", default=SIZES, help=f"scenarios x configs of each table (default {SIZES})")
    add("--seed", type=int, default=0, help="of the tables (default 0)")
    add("--out", type=Path, help="folder for fit_scale.json and a plot")
    args = parser.parse_args(arguments)
    try:
        sizes = sizes_from(args.sizes)
    except ValueError:
        stop(f"--sizes must be like {SIZES}, with two scenarios and two configs at least")
    environment = facts()
    print(", ".join(f"{name} {value}" for name, value in environment.items()))
    print("  ".join(name.rjust(9) for name, _, _ in COLUMNS))
    records = []
    for scenarios, configs in sizes:
        try:
            records.append(measured(scenarios, configs, args.seed))
        except subprocess.CalledProcessError as error:
            print(f"{scenarios} x {configs}: ended with status {error.returncode}", file=sys.stderr)
            return 1
        print(line(records[-1]), flush=True)
    if args.out:
        try:
            print(write(args.out, records, environment))
        except OSError as error:
            stop(f"{args.out}: cannot be written: {error.strerror}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
