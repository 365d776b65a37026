"""A step of `benchmarks.packages.measure`, in a process that can import the package and the module.

python -m benchmarks.packages.judge {choices,launches,first_module,first_autotuner} FOLDER TUNED UNTUNED
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

from benchmarks.common.environment import stop
from benchmarks.common.table import spread_text
from benchmarks.launch.timing import cpu_us, synchronise
from triton_tune import Tuned, Tuning, tuned
from triton_tune.core.problem import Times
from triton_tune.kernel.autotuned import AutotunedKernel
from triton_tune.kernel.batches import first_launch, make
from triton_tune.launch.every_autotuner import function_of
from triton_tune.launch.features import OF_DTYPE
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
    timed = [value for value in values if not math.isnan(value)]
    return spread_text(timed) if timed else "-"


def choices(tuning: Tuning, folder: Path, table: Path, untuned: Path, device: torch.device) -> dict[str, Any]:
    """The figures of what is chosen, by the times of the judged shapes."""
    seen, judged = read_run(table), read_run(untuned)
    times, tuned_times = Times(judged.visits), Times(seen.visits)
    whole_rows = (s for s in judged.scenarios if len(times.measured(s)) == len(judged.header.configs))
    slowdowns = {s: figures for s in whole_rows if (figures := times.slowdowns(s))}
    best = {s: min(row, key=row.__getitem__) for s, row in slowdowns.items()}
    if not best:
        stop(f"{untuned}: all configs were tried for none of the shapes; a longer --judging is needed")

    def over_best(scenario: str, config: str | None) -> float:
        return slowdowns[scenario].get(config or "", math.nan)

    own, _, whole = install(tuning)
    kernel = AutotunedKernel(whole)
    module = {}
    for scenario, shape in zip(judged.scenarios, tuning.shapes, strict=True):
        if scenario in best:
            launch = first_launch(kernel, make(tuning, shape, device))
            assert launch is not None
            module[scenario] = over_best(scenario, kernel.chosen(launch))
    # The autotuner launches what is best for the first shape with its keys; here, each is the first once.
    names = enumerate(judged.header.features)
    places = [place for place, name in names if name in own.keys or name.endswith(OF_DTYPE)]
    key = {s: tuple(judged.scenarios[s][place] for place in places) for s in best}
    alike = {s: [over_best(s, best[first]) for first in best if key[first] == key[s]] for s in best}
    warm = {s: geometric_mean(x for x in figures if not math.isnan(x)) for s, figures in alike.items()}
    again = times.differences()
    cells = len(seen.scenarios) * len(seen.header.configs)
    lock = json.loads((folder / "heuristics/treegen.lock").read_text())
    (built,) = lock["heuristics"][tuning.name].values()
    held_out = [built.get(name) for name in ("held_out", "groups_held_out")]
    single, hindsight = single_best(tuned_times, seen.scenarios), single_best(times, best)
    return {
        "kernel": tuning.name,
        "device": judged.header.device_name,
        "sizes": f"{len(seen.scenarios)}, {len(best)}, {len(judged.header.configs)}",
        "measured": f"{tuned_times.num_measured() / cells:.0%}; {built['rows']}",
        "module": spread(module.values()),
        "held_out": ", ".join(f"{figures['slowdown']:.3f}" if figures else "-" for figures in held_out),
        "single": spread(over_best(s, single) for s in best),
        "hindsight": spread(over_best(s, hindsight) for s in best),
        "random": spread(geometric_mean(row.values()) for row in slowdowns.values()),
        "autotuner": spread(warm.values()),
        "ratio": spread(module[s] / warm[s] for s in best),
        "untimed": sum(map(math.isnan, module.values())),
        "noise": f"{median(again):.1%}" if again else "-",
    }


def single_best(times: Times, scenarios: Iterable[str]) -> str:
    """The config of least geometric mean where most configs were measured, which fails in none of these."""
    rows = {scenario: len(times.measured(scenario)) for scenario in scenarios}
    whole = [times.slowdowns(scenario) for scenario, number in rows.items() if number == max(rows.values())]
    common = set.intersection(*map(set, whole))
    return min(sorted(common), key=lambda config: geometric_mean(row[config] for row in whole), default="")


def launches(tuning: Tuning, untuned: Path, device: torch.device) -> str:
    """CPU microseconds of a launch of the shortest judged shape: module, autotuner, Triton with a config."""
    judged = read_run(untuned)
    times = Times(judged.visits)
    least = {s: min(medians.values()) for s in judged.scenarios if (medians := times.medians(s))}
    shortest = min(least, key=least.__getitem__)  # the queue never fills
    shape = tuning.shapes[list(judged.scenarios).index(shortest)]
    own, ours, whole = install(tuning)
    kernel = AutotunedKernel(whole)
    launch = first_launch(kernel, make(tuning, shape, device))
    assert launch is not None
    call, on_gpu = {"grid": launch.grid, "warmup": False, **launch.kwargs}, device.type == "cuda"
    ways = [partial(run, *launch.args, **call) for run in (ours.run, own.run)[: 1 + on_gpu]]
    config = kernel.configs[kernel.chosen(launch) or min(times.medians(shortest))].config
    ways.append(partial(own.fn.run, *launch.args, **call, **config.all_kwargs()))
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
        figures |= choices(tuning, Path(folder), Path(table), Path(untuned), device)
    elif step == "launches":
        figures[step] = launches(tuning, Path(untuned), device)
    else:
        if step == "first_module":
            install(tuning)
        figures[step] = first_call(tuning, device)
    path.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main(*sys.argv[1:])
