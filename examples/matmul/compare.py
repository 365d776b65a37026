"""The generated module beside the best measured config, Triton's autotuner and torch, on unseen shapes.

    python compare.py [--table] [--autotuned N]

The slowdowns over the best config come from the table of `untuned.py`; `--table` prints only these, and
needs no GPU. Times beside torch and the autotuner, and the host's time of a launch, are measured here.
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean, median

import torch
from heuristics.matmul import MODULES
from matmul import matmul, matmul_kernel
from untuned import UNTUNED

from triton_tune.bench.timing import time_launches
from triton_tune.core.problem import Times
from tuning_table import read_run

KEY = "nvidia_h200"
SETS = 4  # of tensors that consecutive launches rotate among
LAUNCHES = 500  # fewer than a GPU queues, so that the host never waits
SMALL = {"M": 64, "N": 128, "K": 128}  # so small that the host's time is the time of a launch


def slowdowns(folder: Path) -> tuple[dict[str, float], list[str]]:
    """By scenario, the chosen config's median time over the best; and the scenarios where it is untimed."""
    table = read_run(folder)
    times = Times(table.visits)
    ids = {tuple(config.parameters.items()): config.id for config in table.header.configs}
    found, untimed = {}, []
    for scenario, features in table.scenarios.items():
        if not (row := times.slowdowns(scenario)):
            continue
        shape = dict(zip(table.header.features, features, strict=True))
        chosen = MODULES[KEY].choose(**shape)._asdict()
        config = ids.get(tuple((name, value) for name, value in chosen.items() if name != "variant"))
        if config in row:
            found[scenario] = row[config]
        else:
            untimed.append(scenario)
    return found, untimed


def microseconds(product: Callable[..., torch.Tensor], shape: dict[str, int]) -> float:
    """The time of a product on the GPU, by graph replay."""
    device = torch.device("cuda", torch.cuda.current_device())
    with device:
        sets = [UNTUNED.arguments(**shape) for _ in range(SETS)]
    for a, b in sets:
        product(a, b)
    floor = 2 * math.prod(shape.values()) / 1e9  # at 1,000 TFLOP/s
    return time_launches([lambda s=s: product(*s) for s in sets], device, least_us=floor)


def launch_microseconds(ways: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The host's time of a launch in each way: the median of 15 rounds, in which all ways take turns."""
    rounds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(16):
        for name, launch in ways.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(LAUNCHES):
                launch()
            rounds[name].append(1e6 * (time.perf_counter() - start) / LAUNCHES)
    torch.cuda.synchronize()
    return {name: median(times[1:]) for name, times in rounds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only what the table says; needs no GPU")
    parser.add_argument("--autotuned", type=int, default=2, help="shapes to autotune here (default: 2)")
    options = parser.parse_args()
    if not options.table and not torch.cuda.is_available():
        parser.exit(2, "compare.py: measuring needs a GPU; --table needs none\n")
    warnings.simplefilter("ignore")

    found, untimed = slowdowns(Path("untuned_data/matmul") / KEY)
    ranked = sorted(found.values())
    print(
        f"{len(found)} shapes of a model that was not tuned; in {len(untimed)} others the choice is untimed"
    )
    print(
        f"chosen over best measured: {geometric_mean(ranked):.4f} (geometric mean), "
        f"{ranked[int(0.95 * (len(ranked) - 1))]:.3f} (95%), {ranked[-1]:.3f} (worst)"
    )

    if not options.table:
        measure(options.autotuned)


def measure(autotuned: int) -> None:
    """Print what is measured here; autotuned: how many shapes the autotuner gets."""
    ratios = {"up to 64 rows": [], "over 64 rows": []}
    for shape in UNTUNED.shapes:
        ours, torchs = microseconds(matmul, shape), microseconds(torch.matmul, shape)
        ratios["up to 64 rows" if shape["M"] <= 64 else "over 64 rows"].append(ours / torchs)
    for name, values in ratios.items():
        print(f"our time over torch's, {name}: {geometric_mean(values):.3f}")

    tuner = matmul_kernel.autotuner
    spread = list(UNTUNED.shapes)[:: max(1, len(UNTUNED.shapes) // max(1, autotuned))]
    for shape in spread[:autotuned]:
        with torch.device("cuda"):
            a, b = UNTUNED.arguments(**shape)
        torch.cuda.synchronize()
        start = time.perf_counter()
        matmul(a, b, tuner)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        theirs, ours = microseconds(lambda a, b: matmul(a, b, tuner), shape), microseconds(matmul, shape)
        print(f"autotuner, {shape}: {seconds:.1f} s to choose; our time over its {ours / theirs:.3f}")

    with torch.device("cuda"):
        a, b = UNTUNED.arguments(**SMALL)
    c = torch.empty(SMALL["M"], SMALL["N"], device="cuda", dtype=a.dtype)
    arguments = (a, b, c, *SMALL.values(), a.stride(0), b.stride(0), c.stride(0))
    matmul(a, b)
    matmul(a, b, tuner)
    bare, config = tuner.fn, tuner.best_config.all_kwargs()
    ways: dict[str, Callable[[], object]] = {
        "@tuned": lambda: matmul_kernel[(1,)](*arguments),
        "@triton.autotune, warm": lambda: tuner[(1,)](*arguments),
        "one fixed config": lambda: bare[(1,)](*arguments, **config),
        "choosing alone": lambda: matmul_kernel.chosen(*arguments),
    }
    for name, time_us in launch_microseconds(ways).items():
        print(f"host's time of a launch, {name}: {time_us:.2f} us")


if __name__ == "__main__":
    main()
