"""A whole package in one command: record, tune, build and install, and the package's own autotuner beside it.

    python -m benchmarks.packages.whole --steps gated_delta_net kda --budget 150 --out results/whole

Models of `benchmarks.packages.steps` are recorded, one process each; the last one is judged, and is only
recorded so that its kernels can be compiled ahead. Each stage keeps its result in `--out`, so that the same
command goes on, and a table of all results so far is printed at the end and after each stage.
"""

import argparse
import json
import math
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from benchmarks.common.environment import parser_of
from benchmarks.packages.processes import Commands, add_folders, check_machine
from benchmarks.packages.steps import STEPS

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
        self.commands = Commands(self.folder, [options.packages.resolve(), self.folder])

    def done(self, stage: str) -> dict[str, Any] | None:
        path = self.folder / f"{stage}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def step(self, model: int, name: str) -> list[object]:
        return ["benchmarks.packages.steps", self.what, model, self.folder / f"{name}.steps.json"]

    def record(self) -> dict[str, Any]:
        begun, waiting = time.monotonic(), []
        for model in range(self.models):
            seen = self.folder / ("judged" if model == self.models - 1 else "seen")
            step = self.step(model, f"record{model}")
            waiting.append(
                self.commands.start("triton_tune", "--record", seen, "--", sys.executable, "-m", *step)
            )
        for process in waiting:
            if process.wait(timeout=self.options.limit):
                raise subprocess.CalledProcessError(process.returncode, "record")
        return {"seconds": time.monotonic() - begun}

    def tune(self, cache: Path) -> dict[str, Any]:
        words = ["triton_tune", self.folder / "seen", "--budget", self.options.budget]
        words += ["--out", self.folder / "tuning_data"]
        return {"seconds": self.commands.run(*words, cache=cache, most=1)}

    def build(self) -> dict[str, Any]:
        (self.folder / "treegen.yaml").unlink(missing_ok=True)
        tables = sorted((self.folder / "tuning_data").glob("*/*"))
        seconds = self.commands.run("treegen", "init", *tables, most=1)
        return {"seconds": seconds + self.commands.run("treegen", "build", most=1)}

    def judge(self, name: str, cache: Path) -> dict[str, Any]:
        """The judged model's steps: by its `own` autotuners, by `ours`, or by ours compiled `ahead`."""
        use, result = [] if name == "own" else ["--use", "heuristics"], dict[str, Any]()
        if name == "ahead":
            words = ["triton_tune", self.folder / "judged", *use]
            result["ahead_seconds"] = self.commands.run(*words, cache=cache, most=1)
        step = self.step(self.models - 1, name)
        words = ["triton_tune", *use, "--", sys.executable, "-m", *step] if use else step
        self.commands.run(*words, cache=cache, limit=self.options.limit)
        result |= json.loads((self.folder / f"{name}.steps.json").read_text())
        return result

    def stage(self, name: str) -> None:
        """Do a stage and keep its result. Raises SubprocessError."""
        with tempfile.TemporaryDirectory() as cache:
            if name in ("record", "build"):
                result = self.record() if name == "record" else self.build()
            else:
                result = self.tune(Path(cache)) if name == "tune" else self.judge(name, Path(cache))
        (self.folder / f"{name}.json").write_text(json.dumps(result, indent=1))


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
    results = {stage: result for stage in STAGES if (result := runs.done(stage)) is not None}
    log = (runs.folder / "log.txt").read_text() if (runs.folder / "log.txt").exists() else ""
    refused = dict.fromkeys(line for line in log.splitlines() if line.startswith("left out: "))
    tables = list((runs.folder / "tuning_data").glob("*/*/run.yaml"))
    rows = [("kernels with a table", str(len(tables))), ("kernels left out", str(len(refused)))]
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
            mean = f"{sum(ours.values()) / total:.3f} {geometric_mean(ratios.values()):.3f}"
            matter = {name: ratio for name, ratio in ratios.items() if own[name] > MATTERS * total}
            worst = max(matter or ratios, key=lambda name: ratios[name])
            rows.append(("kernels, ours / own: all, mean", mean))
            rows.append(("worst that carries over 5%", f"{ratios[worst]:.3f} {worst}"))
        differ, searched = differing(results["own"]["timings"])
        title = f"ranks of {RANKS} differ: own (noise of {NOISE:.0%})"
        rows.append((title, f"{differ} of {searched} kernels"))
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
    add_folders(parser, "results/whole")
    add("--budget", type=float, default=150.0, help="seconds to tune each package in")
    add("--limit", type=float, default=400.0, help="seconds after which a program is ended")
    options = parser.parse_args(arguments)
    if options.steps:
        check_machine(options.packages)
    status = 0
    for name in options.steps:
        runs = Runs(name, options)
        for stage in STAGES:
            if stage not in options.stages or runs.done(stage) is not None:
                continue
            begun = time.monotonic()
            try:
                runs.stage(stage)
                print(f"{name}: {stage}: {time.monotonic() - begun:.0f} s", flush=True)
            except (subprocess.SubprocessError, OSError) as error:
                print(f"{name}: {stage}: {type(error).__name__}: {runs.commands.last_line()}", flush=True)
                status = 1
                break
    for folder in sorted(path for path in options.out.glob("*") if path.name in STEPS):
        print(f"\n{folder.name}")
        for title, text in summary(Runs(folder.name, options)):
            print(f"{title:44}{text}")
    return status


if __name__ == "__main__":
    raise SystemExit(main())
