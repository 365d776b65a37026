"""Tune kernels of other packages, and judge the modules on models that were not tuned.

    python -m benchmarks.packages.measure --kernels chunk_scan chunk_h --out results/packages

Each kernel is tuned for shapes of models, and a module is built. Then every config is timed for shapes of
other models. By these times the module's choices are judged, and those of the package's own autotuner, which
reuses what it found for the first shape with equal keys. The steps are the commands of docs/your_kernel.md.
The last lines are a table of all kernels in `--out`, those of earlier calls included. Exit code 1 if a step
failed; `log.txt` of the kernel has its output.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common.environment import device_from, stop

HERE = Path(__file__).resolve().parent
KERNELS = ("int8_mm", "chunk_scan", "chunk_h")
TUNING_SHARE, JUDGED_SHARE = 0.55, 0.3  # of the budget; launches and first calls take the rest
ROWS = {
    "kernel": "kernel",
    "device": "device",
    "shapes tuned, shapes judged, configs": "sizes",
    "module / best: mean, 95%, worst": "module",
    "autotuner, warm / best": "autotuner",
    "module / autotuner, warm": "ratio",
    "choices without a time": "untimed",
    "repeats of a cell differ by": "noise",
    "CPU us a launch: module, autotuner, Triton": "launch_us",
    "first call, s: module": "first_module",
    "first call, s: autotuner": "first_autotuner",
}


def measure(kernel: str, packages: Path, out: Path, budget: float) -> None:
    """Tune and judge a kernel, with all files below `out`. Raises SubprocessError where a step fails."""
    folder, here = out / kernel, HERE / kernel
    folder.mkdir(parents=True, exist_ok=True)
    paths = [packages, here, HERE, folder, HERE.parents[1], os.environ.get("PYTHONPATH", "")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONUNBUFFERED": "1"}

    def step(module: str, *words: object, **more: str) -> None:
        begun, command = time.monotonic(), [sys.executable, "-m", module, *map(str, words)]
        with (folder / "log.txt").open("a") as log:
            subprocess.run(command, env=env | more, stdout=log, stderr=log, timeout=2 * budget, check=True)
        print(f"{kernel}: {module} {words[0]}: {time.monotonic() - begun:.0f} s", flush=True)

    def table(file: Path, name: str, share: float, strategy: str) -> Path:
        where, seconds = folder / name, f"{share * budget:.0f}"
        step("triton_tune", file, "--budget", seconds, "--strategy", strategy, "--out", where)
        return next((where / kernel).iterdir())

    tuned, spec = table(here / "tune.py", "tuning_data", TUNING_SHARE, "race"), folder / "treegen.yaml"
    if not spec.exists() and (here / spec.name).exists():
        shutil.copy(here / spec.name, spec)
        step("treegen", "init", "--add", tuned, "--spec", spec)
    elif not spec.exists():
        step("treegen", "init", tuned, "--spec", spec)
    step("treegen", "build", "--spec", spec)
    untuned = table(HERE / "untuned.py", "untuned_data", JUDGED_SHARE, "full")
    step("benchmarks.packages.judge", "judge", folder, tuned, untuned)
    for what in ("first_module", "first_autotuner")[: 1 if env.get("TRITON_INTERPRET") == "1" else 2]:
        with tempfile.TemporaryDirectory() as empty:
            step("benchmarks.packages.judge", what, folder, tuned, untuned, TRITON_CACHE_DIR=empty)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 where a step failed."""
    parser = argparse.ArgumentParser(prog="benchmarks.packages.measure", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=KERNELS)
    parser.add_argument("--packages", type=Path, default=Path(".packages"), help="folder of the packages")
    parser.add_argument("--out", type=Path, default=Path("results/packages"), help="folder of all results")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for each kernel, about")
    options = parser.parse_args(arguments)
    device_from("cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda")
    if not options.packages.is_dir():
        stop(f"--packages {options.packages}: no such folder; benchmarks/README.md says how to fill it")
    if options.budget <= 0:
        stop(f"--budget {options.budget:g}: seconds above 0 are needed")
    failed = False
    for kernel in options.kernels:
        try:
            measure(kernel, options.packages.resolve(), options.out.resolve(), options.budget)
        except subprocess.SubprocessError as error:
            lines = (options.out / kernel / "log.txt").read_text().splitlines()
            print(f"{kernel}: {error.__class__.__name__}: {lines[-1] if lines else error}", flush=True)
            failed = True
    found = [json.loads(path.read_text()) for path in sorted(options.out.glob("*/figures.json"))]
    for title, name in ROWS.items() if found else ():
        print(f"{title:42}" + "".join(f"{each.get(name, '-'):>26}" for each in found))
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
