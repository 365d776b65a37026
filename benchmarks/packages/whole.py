"""A whole package in one command: record, tune, build and install, and the package's own autotuner beside it.

    python -m benchmarks.packages.whole --steps gated_delta_net kda --budget 150 --out results/whole

Models of `benchmarks.packages.steps` are recorded, one process each; the last one is judged, and is only
recorded so that its kernels can be compiled ahead. Each stage keeps its result in `--out`, so that the same
command goes on, and a table of all results so far is printed at the end and after each stage.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from benchmarks.common.environment import device_from, parser_of, stop
from benchmarks.packages.steps import STEPS, TINY

STAGES = ("record", "tune", "build", "ours", "ahead", "own")
RANKS, NOISE = 8, 0.02  # of a simulation of what ranks of a job choose: a time's relative deviation
MATTERS = 0.05  # of the time of all kernels


class Runs:
    """The processes of one package's stages, with all files below a folder."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self.what, self.options = name, options
        self.folder = options.out.resolve() / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.models = len(STEPS[name][1])

    def done(self, stage: str) -> dict[str, Any] | None:
        path = self.folder / f"{stage}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def keep(self, stage: str, result: dict[str, Any]) -> None:
        (self.folder / f"{stage}.json").write_text(json.dumps(result, indent=1))

    def start(self, *words: object, cache: str = "") -> subprocess.Popen[bytes]:
        here = Path(__file__).resolve().parents[2]
        path = [self.options.packages.resolve(), here, self.folder, os.environ.get("PYTHONPATH", "")]
        env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONUNBUFFERED": "1"}
        if cache:
            env["TRITON_CACHE_DIR"] = cache
        with (self.folder / "log.txt").open("a") as log:
            log.write(f"\n$ {' '.join(map(str, words))}\n")
            log.flush()
            return subprocess.Popen(list(map(str, words)), env=env, stdout=log, stderr=log, cwd=self.folder)

    def run(self, *words: object, cache: str = "", limit: float | None = None) -> float:
        """Seconds that a command took. Raises SubprocessError."""
        begun = time.monotonic()
        process = self.start(*words, cache=cache)
        try:
            status = process.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        if status not in (0, 1):
            raise subprocess.CalledProcessError(status, [str(word) for word in words])
        return time.monotonic() - begun

    def step(self, model: int, name: str) -> list[object]:
        file = self.folder / f"{name}.steps.json"
        return [sys.executable, "-m", "benchmarks.packages.steps", self.what, model, file]

    def stage(self, name: str) -> dict[str, Any]:
        """Do a stage and return its result. Raises SubprocessError."""
        tuner, result = [sys.executable, "-m", "triton_tune"], dict[str, Any]()
        if name == "record":
            begun, waiting = time.monotonic(), []
            for model in range(self.models):
                seen = "judged" if model == self.models - 1 else "seen"
                step = self.step(model, f"record{model}")
                waiting.append(self.start(*tuner, "--record", self.folder / seen, "--", *step))
            for process in waiting:
                if process.wait(timeout=self.options.limit):
                    raise subprocess.CalledProcessError(process.returncode, "record")
            result["seconds"] = time.monotonic() - begun
        elif name == "tune":
            with tempfile.TemporaryDirectory() as cache:
                words = [*tuner, self.folder / "seen", "--budget", self.options.budget]
                result["seconds"] = self.run(*words, "--out", self.folder / "tuning_data", cache=cache)
        elif name == "build":
            treegen = [sys.executable, "-m", "treegen"]
            (self.folder / "treegen.yaml").unlink(missing_ok=True)
            tables = sorted((self.folder / "tuning_data").glob("*/*"))
            result["seconds"] = self.run(*treegen, "init", *tables)
            result["seconds"] += self.run(*treegen, "build")
        else:
            use = {"ours": ["--use", "heuristics"], "ahead": ["--use", "heuristics"], "own": []}[name]
            with tempfile.TemporaryDirectory() as cache:
                if name == "ahead":
                    judged = self.folder / "judged"
                    result["ahead_seconds"] = self.run(*tuner, judged, *use, cache=cache)
                step = self.step(self.models - 1, name)
                words = [*tuner, *use, "--", *step] if use else step
                self.run(*words, cache=cache, limit=self.options.limit)
            result |= json.loads((self.folder / f"{name}.steps.json").read_text())
        return result


def differing(timings: dict[str, list[float]]) -> tuple[int, int]:
    """Of kernels with a search, those for which some of the ranks choose another config; and all of them."""
    generator, differ = random.Random(0), 0
    for times in timings.values():
        finite = [time for time in times if math.isfinite(time)]
        chosen = set()
        for _ in range(RANKS):
            noisy = [time * (1 + generator.gauss(0, NOISE)) for time in finite]
            chosen.add(noisy.index(min(noisy)) if noisy else 0)
        differ += len(chosen) > 1
    return differ, len(timings)


def summary(runs: Runs) -> list[tuple[str, str]]:
    """The rows of a package's table."""
    rows: list[tuple[str, str]] = []
    results = {stage: result for stage in STAGES if (result := runs.done(stage)) is not None}
    log = (runs.folder / "log.txt").read_text() if (runs.folder / "log.txt").exists() else ""
    tables = list((runs.folder / "tuning_data").glob("*/*/run.yaml"))
    rows.append(("kernels with a table", str(len(tables))))
    refused = dict.fromkeys(line for line in log.splitlines() if line.startswith("left out: "))
    rows.append(("kernels left out", str(len(refused))))
    for stage in ("record", "tune", "build"):
        if stage in results:
            rows.append((f"{stage}, s", f"{results[stage]['seconds']:.0f}"))
    for stage in ("own", "ours", "ahead"):
        if stage in results and results[stage]["first"]:
            rows.append((f"first step, s: {stage}", " ".join(f"{s:.1f}" for s in results[stage]["first"])))
    if "ahead" in results:
        rows.append(("compiled ahead before, s", f"{results['ahead']['ahead_seconds']:.1f}"))
    for stage in ("own", "ours"):
        if stage in results:
            warm, total = results[stage]["warm_ms"], sum(results[stage]["kernels_us"].values())
            spread = f"{median(warm):.2f} ({min(warm):.2f} to {max(warm):.2f})"
            rows.append((f"warm step: {stage}, ms; its kernels, us", f"{spread} {total:.0f}"))
    if "own" in results and "ours" in results:
        own, ours = results["own"]["kernels_us"], results["ours"]["kernels_us"]
        ratios = {name: ours[name] / own[name] for name in own if own[name] and name in ours}
        if ratios:
            total = sum(own.values())
            matter = {name: ratio for name, ratio in ratios.items() if own[name] > MATTERS * total}
            rows.append(
                (
                    "kernels, ours / own: all, mean",
                    f"{sum(ours.values()) / total:.3f} {geometric_mean(ratios.values()):.3f}",
                )
            )
            worst = max(matter or ratios, key=lambda name: ratios[name])
            rows.append(("worst that carries over 5%", f"{ratios[worst]:.3f} {worst}"))
        differ, searched = differing(results["own"]["timings"])
        rows.append(
            (f"ranks of {RANKS} differ: own (noise of {NOISE:.0%})", f"{differ} of {searched} kernels")
        )
    if "ours" in results and "ahead" in results:
        both = [results[stage]["configs"] for stage in ("ours", "ahead")]
        differ = sum(both[0][name] != both[1].get(name) for name in both[0])
        rows.append(("two processes differ: ours", f"{differ} of {len(both[0])} kernels"))
    return rows + [("", line) for line in refused]


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0, or 1 where a stage failed."""
    parser = parser_of(__doc__, "benchmarks.packages.whole")
    add = parser.add_argument
    add("--steps", nargs="*", choices=STEPS, default=["gated_delta_net"], help="none: print the tables alone")
    add("--stages", nargs="+", choices=STAGES, default=STAGES, help="in this order; those that are done stay")
    add("--packages", type=Path, default=Path(".packages"), help="folder of the packages")
    add("--out", type=Path, default=Path("results/whole"), help="folder of all results")
    add("--budget", type=float, default=150.0, help="seconds to tune each package in")
    add("--limit", type=float, default=400.0, help="seconds after which a program is ended")
    options = parser.parse_args(arguments)
    if options.steps:
        device_from("cpu" if TINY else "cuda")
        if not options.packages.is_dir():
            stop(f"--packages {options.packages}: no such folder; benchmarks/README.md says how to fill it")
    status = 0
    for name in options.steps:
        runs = Runs(name, options)
        for stage in STAGES:
            if stage not in options.stages or runs.done(stage) is not None:
                continue
            begun = time.monotonic()
            try:
                runs.keep(stage, runs.stage(stage))
                print(f"{name}: {stage}: {time.monotonic() - begun:.0f} s", flush=True)
            except (subprocess.SubprocessError, OSError) as error:
                lines = (runs.folder / "log.txt").read_text().splitlines()
                print(f"{name}: {stage}: {type(error).__name__}: {lines[-1] if lines else ''}", flush=True)
                status = 1
                break
    for folder in sorted(path for path in options.out.glob("*") if path.name in STEPS):
        print(f"\n{folder.name}")
        for title, text in summary(Runs(folder.name, options)):
            print(f"{title:44}{text}")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
