"""The generated module beside vLLM's default config and vLLM's nearest tuned file, on models not tuned for.

    python compare.py [CONFIGS]     # the folder of vLLM's tuned files, `quantization/utils/configs`

All times are those of the table of `untuned.py`, for the kernel of this example.
"""

import json
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean

from heuristics.block_fp8 import MODULES

from triton_tune.core.problem import Times
from tuning_table import read_run

KEY = "nvidia_h200"
FILE = re.compile(r"N=(\d+),K=(\d+),device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=\[128,128\]\.json")
# vLLM 0.24's config where it has no file: w8a8_triton_block_scaled_mm in fp8_utils.py.
DEFAULT = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 32}
DEFAULT |= {"num_warps": 4, "num_stages": 2}

Shape = dict[str, int]
Choose = Callable[[Shape], dict[str, int]]


def by_rows(shape: Shape) -> dict[str, int]:
    """The module's choice."""
    chosen = MODULES[KEY].choose(**shape)._asdict()
    return {name: value for name, value in chosen.items() if name != "variant"}


def by_nearest_file(folder: Path) -> Choose:
    """The choice of the tuned file whose N and K are nearest; of its M the nearest, as vLLM takes it."""
    files = {}
    for path in folder.glob("*.json"):
        if match := FILE.fullmatch(path.name):
            files[int(match[1]), int(match[2])] = {int(m): c for m, c in json.loads(path.read_text()).items()}
    if not files:
        raise SystemExit(f"{folder}: holds no file of an H200 for float8 blocks of 128 x 128")

    def choose(shape: Shape) -> dict[str, int]:
        n, k = math.log2(shape["N"]), math.log2(shape["K"])
        nearest = min(files, key=lambda other: math.dist((n, k), (math.log2(other[0]), math.log2(other[1]))))
        rows = min(files[nearest], key=lambda m: abs(m - shape["M"]))
        return files[nearest][rows]

    return choose


def compare(folder: Path, ways: dict[str, Choose]) -> list[str]:
    """Lines that state each way's time over the best, and over the rows', by geometric mean."""
    table = read_run(folder)
    ids = {tuple(sorted(config.parameters.items())): config.id for config in table.header.configs}
    times = Times(table.visits)
    over_best: dict[str, dict[str, float]] = {name: {} for name in ways}  # by way and scenario
    for scenario, values in table.scenarios.items():
        shape, slowdowns = dict(zip(table.header.features, values, strict=True)), times.slowdowns(scenario)
        for name, choose in ways.items():
            config = ids.get(tuple(sorted(choose(shape).items())))
            if config in slowdowns:
                over_best[name][scenario] = slowdowns[config]
    lines = []
    for name, found in over_best.items():
        if not found:
            lines.append(f"{name}: no choice was timed")
            continue
        over_rows = [found[s] / over_best["rows"][s] for s in found if s in over_best["rows"]]
        lines.append(
            f"{name}: {geometric_mean(found.values()):.3f} times the best in {len(found)} of "
            f"{len(table.scenarios)} shapes; "
            f"{geometric_mean(over_rows):.3f} times the rows' ({min(over_rows):.2f} to {max(over_rows):.2f})"
        )
    return lines


def main() -> None:
    ways: dict[str, Choose] = {"rows": by_rows, "vLLM's default": lambda shape: DEFAULT}
    if len(sys.argv) > 1:
        ways["vLLM's nearest file"] = by_nearest_file(Path(sys.argv[1]))
    print("\n".join(compare(Path("untuned_data/block_fp8") / KEY, ways)))


if __name__ == "__main__":
    main()
