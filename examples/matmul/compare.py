"""The module's choices beside torch and Triton's autotuner, on shapes of a model that was not tuned.

    python compare.py [--autotuned N]     # needs a GPU

How far the choices are from the best configs measured needs none: `treegen eval --against untuned_data/...`.
"""

import argparse
import math
import time
import warnings
from collections.abc import Callable
from statistics import geometric_mean, median

import torch
from matmul import matmul, matmul_kernel
from untuned import UNTUNED

from triton_tune.bench.timing import time_launches

SETS = 4  # of tensors that consecutive launches rotate among
LAUNCHES = 500  # fewer than a GPU queues, so that the host never waits
SMALL = {"M": 64, "N": 128, "K": 128}  # so small that the host's time is the time of a launch


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--autotuned", type=int, default=2, help="shapes to autotune (default: 2)")
    autotuned = parser.parse_args().autotuned
    if not torch.cuda.is_available():
        parser.exit(2, "compare.py: a GPU is needed\n")
    warnings.simplefilter("ignore")
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


if __name__ == "__main__":
    main()
