"""Tune kernels of other packages, and judge the modules on models that were not tuned.

    python -m benchmarks.packages.measure --kernels chunk_scan chunk_h --tuning 60 30 --out results/packages

For each number of seconds, each kernel is tuned for shapes of models, with nothing compiled before, and a
module is built. Then every config is timed for shapes of other models. By these times the module's choices
are judged, and those of the package's own autotuner, which reuses what it found for the first shape with
equal keys. The steps are the commands of docs/your_kernel.md; the same command again goes on with unfinished
tables. The last lines are tables of all kernels in `--out`, those of earlier calls included. Exit code 1 if
a step failed; `log.txt` of the kernel has its output.
"""

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.common.environment import parser_of
from benchmarks.common.table import aligned
from benchmarks.packages.processes import Commands, add_folders, check_machine

HERE = Path(__file__).resolve().parent
KERNELS = ("chunk_kkt", "causal_conv1d", "fused_swiglu", "chunk_scan", "chunk_h", "int8_mm")
ROWS = {
    "kernel": "kernel",
    "device": "device",
    "shapes tuned, shapes judged, configs": "sizes",
    "cells measured; rows of the module": "measured",
    "module / best: mean, 95%, worst": "module",
    "treegen build says: held out, groups": "held_out",
    "single best config of judged shapes / best": "hindsight",
    "autotuner, warm / best": "autotuner",
    "choices without a time": "untimed",
    "repeats of a cell differ by": "noise",
    "CPU us per launch: module, autotuner": "launches",
    "first call, s: module": "first_module",
    "first call, s: autotuner": "first_autotuner",
}


def measure(kernel: str, options: argparse.Namespace, commands: Commands, cache: Path) -> None:
    """Tune and judge a kernel, with all files below `--out`. Raises SubprocessError where a step fails."""
    folder, here = commands.folder, HERE / kernel
    limit = 2 * (max(options.tuning) + options.judging)

    def step(where: Path, cached: str, *words: object) -> None:
        took = replace(commands, imports=[*commands.imports, where]).run(
            *words, cache=cache / cached, limit=limit
        )
        first = words[1].name if isinstance(words[1], Path) else words[1]
        print(f"{kernel}: {where.name}: {words[0]} {first}: {took:.0f} s", flush=True)

    def table(where: Path, file: Path, name: str, seconds: float, strategy: str) -> Path:
        how = ("--budget", seconds, "--strategy", strategy, "--out", where / name)
        step(where, where.name, "triton_tune", file, *how)
        return next((where / name / kernel).iterdir())

    tables = {}
    for seconds in options.tuning:
        where = folder / f"{seconds:g}s"
        where.mkdir(exist_ok=True)
        spec = where / "treegen.yaml"
        tables[where] = table(where, here / "tune.py", "tuning_data", seconds, "race")
        if not spec.exists() and (here / spec.name).exists():
            shutil.copy(here / spec.name, spec)
            step(where, "", "treegen", "init", "--add", tables[where], "--spec", spec)
        elif not spec.exists():
            step(where, "", "treegen", "init", tables[where], "--spec", spec)
        step(where, "", "treegen", "build", "--spec", spec)
    untuned = table(folder, HERE / "untuned.py", "untuned_data", options.judging, "full")
    for where, tuned in tables.items():
        step(where, folder.name, "benchmarks.packages.judge", "choices", where, tuned, untuned)
    interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    for first in ("launches", "first_module", "first_autotuner")[: 2 if interpreted else 3]:
        if options.launches:
            step(where, first, "benchmarks.packages.judge", first, where, tuned, untuned)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 where a step failed."""
    parser = parser_of(__doc__, "benchmarks.packages.measure")
    add = parser.add_argument
    add("--kernels", nargs="*", choices=KERNELS, default=KERNELS, help="none: print the tables alone")
    add_folders(parser, "results/packages")
    add("--tuning", nargs="+", type=float, default=[60.0], help="seconds to tune in, a module for each")
    add("--judging", type=float, default=90.0, help="seconds for the shapes of other models, at most")
    add("--launches", action="store_true", help="also time launches and first calls, with the last module")
    options = parser.parse_args(arguments)
    if options.kernels:
        check_machine(options.packages)
    failed = False
    for kernel in options.kernels:
        folder = options.out.resolve() / kernel
        folder.mkdir(parents=True, exist_ok=True)
        commands = Commands(folder, [options.packages.resolve(), HERE / kernel, HERE])
        try:
            with tempfile.TemporaryDirectory() as cache:
                measure(kernel, options, commands, Path(cache))
        except subprocess.SubprocessError as error:
            print(f"{kernel}: {error.__class__.__name__}: {commands.last_line()}", flush=True)
            failed = True
    paths = sorted(options.out.glob("*/*/figures.json"))
    for name in sorted({path.parent.name for path in paths}):
        figures = [json.loads(path.read_text()) for path in paths if path.parent.name == name]
        print(f"\nTuned in {name}")
        rows = [[title, *(str(each.get(row, "-")) for each in figures)] for title, row in ROWS.items()]
        print(*aligned(rows), sep="\n")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
