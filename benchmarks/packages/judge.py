"""A step of `benchmarks.packages.measure`, in a process that can import the package and the module.

python -m benchmarks.packages.judge {choices,launches,first_module,first_autotuner} FOLDER TUNED UNTUNED
"""

import copy
import importlib
import json
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from triton.runtime.autotuner import Autotuner

from benchmarks.choosers.judge import autotuned
from benchmarks.common.environment import stop
from benchmarks.common.table import figure
from benchmarks.launch.timing import cpu_us, synchronise
from treegen.core.problem import UNTIMED
from treegen.crossval.peers import single_best
from treegen.crossval.score import Score, costs_of, quality
from treegen.read.problem import build_problem, read_table
from treegen.read.spec import read_spec
from treegen.write.modules import read_modules
from triton_tune import Tuned, Tuning, tuned
from triton_tune.core.problem import Times
from triton_tune.kernel.autotuned import AutotunedKernel
from triton_tune.kernel.batches import first_launch, make
from triton_tune.launch.features import OF_DTYPE
from tuning_table import read_run


def install(tuning: Tuning) -> tuple[Autotuner, Tuned]:
    """Let the module choose where the package's autotuner launches. Returns that, apart, and the module's."""
    tuner = AutotunedKernel(tuning.kernel).tuner
    own = copy.copy(tuner)
    ours = tuned(f"heuristics.{tuning.name}", features=tuning.features)(own)
    tuner.run = ours.run
    return own, ours


def choices(tuning: Tuning, folder: Path, table: Path, untuned: Path) -> dict[str, Any]:
    """The figures of what is chosen, by the times of the shapes for which every config was tried."""
    spec = read_spec(folder / "treegen.yaml")
    ((name, key), module), *_ = read_modules(spec).items()
    kernel, device = spec.kernels[name], spec.devices[key]
    every = build_problem(kernel, device, read_table(untuned))
    judged = every.rows(np.flatnonzero((every.cost != UNTIMED).all(axis=1)))
    if not judged.scenarios:
        stop(f"{untuned}: all configs were tried for none of the shapes; a longer --judging is needed")
    asked = AutotunedKernel(tuning.kernel).tuner.keys
    keys = [name for name in kernel.features if name in asked or name.endswith(OF_DTYPE)]
    costs = {
        "module": Score.of(judged, module.heuristic).cost,
        "hindsight": costs_of(single_best(judged, 1).columns(judged), judged),
        "autotuner": autotuned(judged, keys),
    }
    found = {way: quality(cost, judged.scenarios, judged.table.cells) for way, cost in costs.items()}
    seen = read_run(table)
    cells, times = len(seen.scenarios) * len(seen.header.configs), Times(seen.visits)
    again = Times(read_run(untuned).visits).differences()
    lock = json.loads((folder / "heuristics/treegen.lock").read_text())
    built = lock["heuristics"][name][key]
    held_out = [built.get(name) for name in ("held_out", "groups_held_out")]
    texts = {
        way: f"{q.slowdown:5.3f} {q.percentile95:5.2f} {figure(q.worst, '5.2f')}" for way, q in found.items()
    }
    return {
        "kernel": name,
        "device": judged.table.device_name,
        "sizes": f"{len(seen.scenarios)}, {len(judged.scenarios)}, {len(judged.configs)}",
        "measured": f"{times.num_measured() / cells:.0%}; {built['rows']}",
        **texts,
        "held_out": ", ".join(f"{figures['slowdown']:.3f}" if figures else "-" for figures in held_out),
        "untimed": found["module"].unmeasured + found["module"].failed,
        "noise": f"{median(again):.1%}" if again else "-",
    }


def launches(tuning: Tuning, untuned: Path, device: torch.device) -> str:
    """CPU microseconds of a launch of the shortest judged shape: by the module, and by the autotuner."""
    judged = read_run(untuned)
    times = Times(judged.visits)
    least = {s: min(medians.values()) for s in judged.scenarios if (medians := times.medians(s))}
    shortest = min(least, key=least.__getitem__)  # the queue never fills
    shape = tuning.shapes[list(judged.scenarios).index(shortest)]
    launch = first_launch(AutotunedKernel(tuning.kernel), make(tuning, shape, device))
    assert launch is not None
    own, ours = install(tuning)
    call, on_gpu = {"grid": launch.grid, "warmup": False, **launch.kwargs}, device.type == "cuda"
    ways = [partial(run, *launch.args, **call) for run in (ours.run, own.run)[: 1 + on_gpu]]
    return " ".join(f"{cpu_us(way, device, 60 if on_gpu else 1):.1f}" for way in ways)


def first_call(tuning: Tuning, device: torch.device) -> str:
    """Seconds of this process's first call."""
    call = make(tuning, tuning.shapes[0], device)
    synchronise(device)
    begun = time.monotonic()
    call()
    synchronise(device)
    return f"{time.monotonic() - begun:.1f}"


def main(step: str, folder: str, table: str, untuned: str) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tuning = importlib.import_module("untuned").UNTUNED
    path = Path(folder) / "figures.json"
    figures = json.loads(path.read_text()) if path.exists() else {}
    if step == "choices":
        figures |= choices(tuning, Path(folder), Path(table), Path(untuned))
    elif step == "launches":
        figures[step] = launches(tuning, Path(untuned), device)
    else:
        if step == "first_module":
            install(tuning)
        figures[step] = first_call(tuning, device)
    path.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
