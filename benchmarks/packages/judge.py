"""A step of `benchmarks.packages.measure`, in a process that can import the package and the module.

python -m benchmarks.packages.judge {judge,first_module,first_autotuner} FOLDER TUNED UNTUNED
"""

import importlib
import json
import math
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner

from benchmarks.common.table import spread_text
from benchmarks.launch.timing import cpu_us, synchronise
from triton_tune import Tuned, Tuning, tuned
from triton_tune.core.problem import Times
from triton_tune.kernel.autotuned import AutotunedKernel
from triton_tune.kernel.batches import first_launch, make
from triton_tune.launch.tuned import function_of
from triton_tune.launch.words import OF_DTYPE
from tuning_table import read_run


def install(tuning: Tuning) -> tuple[Autotuner, Tuned, Any]:
    """Put a tuned kernel where the package's autotuner stands. Returns both, and the whole kernel."""
    function = function_of(tuning.kernel)
    module: Any = sys.modules[function.__module__]
    owner, name = module, function.__name__
    while not isinstance(getattr(owner, name), Autotuner):  # below @triton.heuristics
        owner, name = getattr(owner, name), "fn"
    own = getattr(owner, name)
    ours = tuned(f"heuristics.{tuning.name}", features=tuning.features)(own)
    setattr(owner, name, ours)
    return own, ours, getattr(module, function.__name__)


def spread(values: Iterable[float]) -> str:
    """Geometric mean, 95th percentile and worst of what is no NaN."""
    found = [value for value in values if not math.isnan(value)]
    return spread_text(found) if found else "-"


def judge(tuning: Tuning, table: Path, untuned: Path, device: torch.device) -> dict[str, Any]:
    """The figures of choices and of launches."""
    judged = read_run(untuned)
    times = Times(judged.visits)
    slowdowns = {s: found for s in judged.scenarios if (found := times.slowdowns(s))}
    best = {s: min(row, key=row.__getitem__) for s, row in slowdowns.items()}
    shortest = min(best, key=lambda s: times.medians(s)[best[s]])

    def over_best(scenario: str, config: str | None) -> float:
        return slowdowns[scenario].get(config or "", math.nan)

    own, ours, whole = install(tuning)
    kernel = AutotunedKernel(whole)
    module = {}
    for scenario, shape in zip(judged.scenarios, tuning.shapes, strict=True):
        launch = first_launch(kernel, tuning, make(tuning, shape, device))
        assert launch is not None
        chosen = kernel.chosen(launch)
        module[scenario] = over_best(scenario, chosen) if scenario in best else math.nan
        if scenario == shortest:  # the queue never fills
            call, on_gpu = {"grid": launch.grid, "warmup": False, **launch.kwargs}, device.type == "cuda"
            ways = [partial(run, *launch.args, **call) for run in (ours.run, own.run)[: 1 + on_gpu]]
            config = kernel.configs[chosen or best[scenario]].config
            ways.append(partial(own.fn.run, *launch.args, **call, **config.all_kwargs()))
            cpu = [cpu_us(way, device, 60 if on_gpu else 1) for way in ways]
    # The autotuner launches what is best for the first shape with its keys; here, each is the first once.
    names = enumerate(judged.header.features)
    places = [place for place, name in names if name in own.keys or name.endswith(OF_DTYPE)]
    key = {s: tuple(judged.scenarios[s][place] for place in places) for s in best}
    alike = {s: [over_best(s, best[first]) for first in best if key[first] == key[s]] for s in best}
    warm = {s: geometric_mean(x for x in found if not math.isnan(x)) for s, found in alike.items()}
    again = times.differences()
    return {
        "kernel": tuning.name,
        "device": judged.header.device_name,
        "sizes": f"{len(read_run(table).scenarios)}, {len(best)}, {len(judged.header.configs)}",
        "module": spread(module.values()),
        "autotuner": spread(warm.values()),
        "ratio": spread(module[s] / warm[s] for s in best),
        "untimed": sum(map(math.isnan, module.values())),
        "noise": f"{median(again):.1%}" if again else "-",
        "launch_us": " ".join(f"{value:.1f}" for value in cpu),
    }


def first_call(tuning: Tuning, device: torch.device) -> str:
    """Seconds of this process's first call."""
    arguments = make(tuning, tuning.shapes[0], device)
    synchronise(device)
    begun = time.monotonic()
    tuning.call(*arguments.args, **arguments.kwargs)
    synchronise(device)
    return f"{time.monotonic() - begun:.1f}"


def main(what: str, folder: str, table: str, untuned: str) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tuning = importlib.import_module("untuned").UNTUNED
    path = Path(folder) / "figures.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    if what == "judge":
        found |= judge(tuning, Path(table), Path(untuned), device)
    else:
        if what == "first_module":
            install(tuning)
        found[what] = first_call(tuning, device)
    path.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
