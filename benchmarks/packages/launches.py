"""CPU time of a warm launch of each kernel of a package: by its own autotuner, served, and recorded.

    TRITON_INTERPRET=1 python -m benchmarks.packages.launches results/whole/norms nvidia_h100

The folder is that of a package in the results of `benchmarks.packages.whole`; the GPU is a module's. What
lies below the autotuner is replaced by nothing, so that only choosing and noting are timed, and no GPU is
needed; figures are microseconds. "Recorded" is a launch that was noted before, as most are.
"""

import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import torch

from benchmarks.common.environment import parser_of, stop
from benchmarks.launch.timing import cpu_us
from triton_tune.kernel.autotuned import AutotunedKernel
from triton_tune.kernel.batches import first_launch, make
from triton_tune.kernel.recorded import load_recorded
from triton_tune.launch.choosing import DEVICE
from triton_tune.launch.install import packages_in, serve
from triton_tune.record.recorder import Recorder

CPU = torch.device("cpu")
LAUNCHES = 3000


def main() -> None:
    parser = parser_of(__doc__, "benchmarks.packages.launches")
    parser.add_argument("folder", type=Path)
    parser.add_argument("device", help="the name of a module, such as nvidia_h100")
    parser.add_argument("--packages", type=Path, default=Path(".packages"), help="folder of the packages")
    options = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET") != "1":
        stop("set TRITON_INTERPRET=1, as no kernel is launched")
    os.environ[DEVICE] = options.device
    sys.path[:0] = [str(options.folder), str(options.packages)]
    modules, recorded = packages_in("heuristics"), load_recorded(options.folder / "judged")
    columns = ("own autotuner", "served", "recorded")
    print(f"{'':34}" + "".join(f"{column:>15}" for column in columns))
    rows = []
    for name, tuning in recorded.tunings.items():
        kernel = AutotunedKernel(tuning.kernel)
        launch = first_launch(kernel, make(tuning, tuning.shapes[0], CPU))
        assert launch is not None
        tuner, given = kernel.tuner, {"grid": launch.grid, "warmup": False, **launch.kwargs}
        tuner.fn.run = lambda *args, **kwargs: None
        tuner._bench = lambda *args, **kwargs: [1.0, 1.0, 1.0]

        def timed(run: Callable[..., object], call: partial[object]) -> float:
            run(*call.args, **call.keywords)
            return cpu_us(partial(run, *call.args, **call.keywords), CPU, LAUNCHES)

        call = partial(tuner.run, *launch.args, **given)
        with tempfile.TemporaryDirectory() as folder:
            own = timed(tuner.run, call)
            served = timed(serve(tuner, modules), call)
            noted = timed(Recorder(Path(folder)).wrap(tuner), call)
        rows.append((own, served, noted))
        print(f"{name:34}" + "".join(f"{us:15.1f}" for us in rows[-1]))
    print(f"{'median':34}" + "".join(f"{median(column):15.1f}" for column in zip(*rows, strict=True)))


if __name__ == "__main__":
    main()
