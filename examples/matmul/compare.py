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
        row = times.slowdowns(scenario)
        shape = dict(zip(table.header.features, features, strict=True))
        _, *chosen = MODULES[KEY].choose(**shape)._asdict().items()  # without the variant
        config = ids.get(tuple(chosen))
        if config in row:
            found[scenario] = row[config]
        elif row:
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


def seconds(launch: Callable[[], object], launches: int = 1) -> float:
    """The host's time of launches, after all earlier ones are done."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(launches):
        launch()
    return time.perf_counter() - start


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
        searched = seconds(lambda a=a, b=b: (matmul(a, b, tuner), torch.cuda.synchronize()))
        theirs, ours = microseconds(lambda a, b: matmul(a, b, tuner), shape), microseconds(matmul, shape)
        print(f"autotuner, {shape}: {searched:.1f} s to choose; our time over its {ours / theirs:.3f}")

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
    # All ways take turns; the first round warms up.
    rounds = [[seconds(launch, LAUNCHES) for launch in ways.values()] for _ in range(16)][1:]
    for name, times in zip(ways, zip(*rounds, strict=True), strict=True):
        print(f"host's time of a launch, {name}: {1e6 * median(times) / LAUNCHES:.2f} us")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--table", action="store_true", help="only what the table says; needs no GPU")
    parser.add_argument("--autotuned", type=int, default=2, help="shapes to autotune here (default: 2)")
    options = parser.parse_args()
    if not options.table and not torch.cuda.is_available():
        parser.exit(2, "compare.py: measuring needs a GPU; --table needs none\n")
    warnings.simplefilter("ignore")
    found, untimed = slowdowns(Path("untuned_data/matmul") / KEY)
    over, count = sorted(found.values()), f"in {len(untimed)} others the choice is untimed"
    print(f"{len(found)} shapes of a model that was not tuned; {count}")
    print(
        f"chosen over best measured: {geometric_mean(over):.4f} (geometric mean), "
        f"{over[int(0.95 * (len(over) - 1))]:.3f} (95%), {over[-1]:.3f} (worst)"
    )
    if not options.table:
        measure(options.autotuned)


if __name__ == "__main__":
    main()
