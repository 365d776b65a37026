"""Tune kernels of other packages, and judge the modules on models that were not tuned.

    python -m benchmarks.packages.measure --kernels chunk_scan chunk_h --out results/packages

Each kernel is tuned for the shapes of its folder's tune.py, and a module is built. Then every config is timed
for the shapes of untuned.py, by which the module's choices are judged, and those of the package's own
autotuner: it reuses what it found for the first shape with equal keys. All steps are the commands of
docs/your_kernel.md. The last lines are a table of all kernels in `--out`, those of earlier calls included.
Exit code 1 if a step failed; its output is in `log.txt`.
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

HERE = Path(__file__).resolve().parent
KERNELS = ("int8_mm", "chunk_scan", "chunk_h")
TUNING_SHARE, JUDGED_SHARE = 0.6, 0.2  # of the budget; the rest is for launches and first calls
ROWS = {
    "kernel": "kernel",
    "device": "device",
    "shapes tuned, judged": "shapes",
    "configs": "configs",
    "time over the best config's: module": "module",
    "autotuner, warm": "autotuner",
    "module's time over the autotuner's": "ratio",
    "choices without a time": "untimed",
    "repeats of a cell differ by": "noise",
    "autotuner as it ran (shapes)": "ran",
    "module there": "module_there",
    "a search with compiled kernels, s": "search",
    "CPU us a launch: module, autotuner, Triton": "launch",
    "first call, s: module": "first_module",
    "first call, s: autotuner": "first_autotuner",
}


def measure(kernel: str, packages: Path, out: Path, budget: float) -> bool:
    """Tune and judge a kernel, with all files below `out`. Returns whether every step worked."""
    end, folder, here = time.monotonic() + budget, out / kernel, HERE / kernel
    folder.mkdir(parents=True, exist_ok=True)
    paths = [packages, here, folder, HERE.parents[1], *filter(None, [os.environ.get("PYTHONPATH")])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONUNBUFFERED": "1"}
    spec = folder / "treegen.yaml"

    def step(module: str, *words: object, timeout: float | None = None, cache: str | None = None) -> bool:
        begun = time.monotonic()
        own = env if cache is None else env | {"TRITON_CACHE_DIR": cache}
        with (folder / "log.txt").open("a") as log:
            try:
                command = [sys.executable, "-m", module, *map(str, words)]
                done = subprocess.run(command, env=own, stdout=log, stderr=log, timeout=timeout, check=False)
            except subprocess.TimeoutExpired:
                print(f"{kernel}: {module} {words[0]}: stopped after {timeout:.0f} s", flush=True)
                return False
        print(
            f"{kernel}: {module} {words[0]}: {time.monotonic() - begun:.0f} s, exit {done.returncode}",
            flush=True,
        )
        return done.returncode == 0

    def tune(name: str, where: str, seconds: float, strategy: str) -> Path | None:
        words = ["--budget", f"{seconds:.0f}", "--strategy", strategy, "--out", folder / where]
        fine = step("triton_tune", here / name, *words)
        return next((folder / where / kernel).iterdir()) if fine else None

    table = tune("tune.py", "tuning_data", TUNING_SHARE * budget, "race")
    if table is None:
        return False
    add = []
    if not spec.exists():
        if (here / spec.name).exists():
            shutil.copy(here / spec.name, spec)
            add = ["--add"]
        if not step("treegen", "init", *add, table, "--spec", spec):
            return False
    if not step("treegen", "build", "--spec", spec):
        return False
    untuned = tune("untuned.py", "untuned_data", JUDGED_SHARE * budget, "full")
    if untuned is None:
        return False
    fine = True
    last = [] if env.get("TRITON_INTERPRET") == "1" else ["first_autotuner"]  # it needs a GPU
    for what in ("judge", "first_module", *last):
        with tempfile.TemporaryDirectory() as empty:
            left = max(60.0, end - time.monotonic())
            words = (folder, table, untuned, left / 2)
            cache = None if what == "judge" else empty
            fine &= step("benchmarks.packages.judge", what, *words, timeout=left, cache=cache)
    return fine


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 where a step failed."""
    parser = argparse.ArgumentParser(prog="benchmarks.packages.measure", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=KERNELS)
    parser.add_argument("--packages", type=Path, default=Path(".packages"), help="folder of the packages")
    parser.add_argument("--out", type=Path, default=Path("results/packages"), help="folder of all results")
    parser.add_argument("--budget", type=float, default=300.0, help="seconds for each kernel, about")
    options = parser.parse_args(arguments)
    packages, out = options.packages.resolve(), options.out.resolve()
    results = [measure(kernel, packages, out, options.budget) for kernel in options.kernels]
    found = [json.loads(path.read_text()) for path in sorted(out.glob("*/figures.json"))]
    for title, name in ROWS.items():
        print(f"{title:42}" + "".join(f"{each.get(name, '-'):>26}" for each in found))
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main())
