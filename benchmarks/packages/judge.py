"""A step of `benchmarks.packages.measure`, in a process that can import the package and the module.

python -m benchmarks.packages.judge {judge,first_module,first_autotuner} FOLDER TABLE UNTUNED SECONDS
"""

import importlib
import json
import math
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import torch
from triton.runtime.autotuner import Autotuner

from benchmarks.launch.timing import cpu_us, synchronise
from triton_tune import Tuned, Tuning, tuned
from triton_tune.kernel.autotuned import AutotunedKernel
from triton_tune.kernel.batches import first_launch, make
from triton_tune.launch.tuned import function_of
from triton_tune.launch.words import OF_DTYPE
from tuning_table import read_run
from tuning_table.table import Failure, RecordedRun

Figures = dict[str, Any]
Times = Mapping[str, Mapping[str, float]]  # microseconds by scenario and config


def install(tuning: Tuning) -> tuple[Autotuner, Tuned, Any]:
    """Put a tuned kernel where the package's autotuner stands. Returns both, and the whole kernel."""
    function = function_of(tuning.kernel)
    module: Any = sys.modules[function.__module__]
    owner, name = module, function.__name__
    while not isinstance(getattr(owner, name), Autotuner):  # below @triton.heuristics
        owner, name = getattr(owner, name), "fn"
    own = getattr(owner, name)
    standing = tuned(f"heuristics.{tuning.name}", features=tuning.features)(own)
    setattr(owner, name, standing)
    return own, standing, getattr(module, function.__name__)


def spread(values: Iterable[float]) -> str:
    """Geometric mean, 95th percentile and worst of what is no NaN."""
    found = sorted(value for value in values if not math.isnan(value))
    if not found:
        return "-"
    return f"{geometric_mean(found):.3f} {found[math.ceil(0.95 * len(found)) - 1]:.2f} {found[-1]:.2f}"


def over_best(times: Times, scenario: str, config: str | None) -> float:
    """A config's time over the best; NaN where it has none."""
    return times[scenario].get(config or "", math.nan) / min(times[scenario].values())


def warm_autotuner(table: RecordedRun, times: Times, keys: list[str]) -> dict[str, float]:
    """What the config costs that is best for a shape with equal keys, the mean over all of these."""
    places = [n for n, name in enumerate(table.header.features) if name in keys or name.endswith(OF_DTYPE)]
    key = {s: tuple(table.scenarios[s][place] for place in places) for s in times}
    best = {s: min(row, key=row.__getitem__) for s, row in times.items()}
    alike = {s: [over_best(times, s, best[other]) for other in times if key[other] == key[s]] for s in times}
    return {s: geometric_mean(x for x in found if not math.isnan(x)) for s, found in alike.items()}


def judge(tuning: Tuning, table: Path, untuned: Path, seconds: float, device: torch.device) -> Figures:
    """The figures of choices, launches and the autotuner's own run, which ends after so many seconds."""
    deadline, judged = time.monotonic() + seconds, read_run(untuned)
    cells: dict[str, dict[str, list[float]]] = {}
    for visit in judged.visits:
        for config, cell in visit.cells.items():
            if not isinstance(cell, Failure):
                cells.setdefault(visit.scenario, {}).setdefault(config, []).append(cell)
    times = {s: {config: median(cell) for config, cell in row.items()} for s, row in cells.items()}
    own, standing, whole = install(tuning)
    kernel = AutotunedKernel(whole)
    ids = {config.config: config.id for config in kernel.configs.values()}
    cached = warm_autotuner(judged, times, own.keys)
    module, ran, searches = {}, {}, []
    cpu: list[float] = []
    shapes = dict(zip(judged.scenarios, tuning.shapes, strict=True))
    on_gpu = device.type == "cuda"  # where alone the autotuner works
    for scenario in sorted(times, key=lambda s: min(times[s].values())):  # first what is soon done
        launch = first_launch(kernel, tuning, make(tuning, shapes[scenario], device))
        assert launch is not None
        module[scenario] = over_best(times, scenario, kernel.chosen(launch))
        call = {"grid": launch.grid, "warmup": False, **launch.kwargs}
        if on_gpu and time.monotonic() < deadline:
            known, begun = len(own.cache), time.monotonic()
            own.run(*launch.args, **call)
            searches += [time.monotonic() - begun] * (len(own.cache) - known)
            ran[scenario] = over_best(times, scenario, ids[own.best_config])
        if not cpu:
            config = own.best_config if on_gpu else own.configs[0]
            ways = [partial(run, *launch.args, **call) for run in (standing.run, own.run)[: 1 + on_gpu]]
            ways.append(partial(own.fn.run, *launch.args, **call, **config.all_kwargs()))
            cpu = [cpu_us(way, device, 60 if on_gpu else 1) for way in ways]
    again = [max(c) / min(c) - 1 for row in cells.values() for c in row.values() if len(c) > 1]
    return {
        "kernel": tuning.name,
        "device": judged.header.device_name,
        "shapes": f"{len(read_run(table).scenarios)}, {len(times)}",
        "configs": len(judged.header.configs),
        "module": spread(module.values()),
        "autotuner": spread(cached.values()),
        "ratio": spread(module[s] / cached[s] for s in module),
        "untimed": sum(map(math.isnan, module.values())),
        "noise": f"{median(again):.1%}" if again else "-",
        "ran": f"{spread(ran.values())} ({len(ran)})",
        "module_there": spread(module[s] for s in ran),
        "search": f"{median(searches):.1f} ({len(searches)})" if searches else "-",
        "launch": " ".join(f"{value:.1f}" for value in cpu),
    }


def first_call(tuning: Tuning, device: torch.device) -> str:
    """Seconds of the first call in this process, of the shape that is judged first."""
    shape = tuning.shapes[0]
    assert isinstance(shape, Mapping)
    arguments = make(tuning, shape, device)
    synchronise(device)
    begun = time.monotonic()
    tuning.call(*arguments.args, **arguments.kwargs)
    synchronise(device)
    return f"{time.monotonic() - begun:.1f}"


def main(what: str, folder: str, table: str, untuned: str, seconds: str) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tuning = importlib.import_module("untuned").UNTUNED
    path = Path(folder) / "figures.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    if what == "judge":
        found |= judge(tuning, Path(table), Path(untuned), float(seconds), device)
    else:
        if what == "first_module":
            install(tuning)
        found[what] = first_call(tuning, device)
    path.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
