"""Time every config of `convolve` on many lengths, and write a table.

A tuning run of GPU kernels replays CUDA graphs with a cold cache (`attn-tune`); here a clock is enough.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import time

import numpy as np
from convolve import Array, convolve

import tuning_table

CONFIGS = [
    {"id": "direct", "variant": "direct", "block": 0},
    {"id": "fft", "variant": "fft", "block": 0},
    *({"id": f"blocks_{b}", "variant": "overlap_add", "block": b} for b in (1024, 4096, 16384)),
]


def microseconds(signal: Array, kernel: Array, config: dict[str, str | int]) -> float:
    """The least of five times of one call."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        output = convolve(signal, kernel, str(config["variant"]), int(config["block"]))
        times.append(time.perf_counter() - start)
    assert np.allclose(output, np.convolve(signal, kernel))  # a wrong config must not win
    return min(times) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a table of convolutions.")
    parser.add_argument("folder", help="where the table goes")
    parser.add_argument("--largest", type=int, default=17, help="log2 of the longest signal (default: 17)")
    options = parser.parse_args()
    lengths = [(3 << n, 3 << m) for n in range(4, options.largest - 1) for m in range(0, min(n, 11))]
    table = tuning_table.create(
        options.folder,
        kernel="convolve",
        device={"name": platform.machine()},
        timing="least of five calls",
        origin={"published_by": "examples/convolve/measure.py", "numpy": np.__version__},
        date=datetime.date.today().isoformat(),
        features=["signal_len", "filter_len"],
        configs=CONFIGS,
        scenarios={f"s{n}_f{m}": (n, m) for n, m in lengths},
    )
    random = np.random.default_rng(0)
    for repeat in (1, 2):  # treegen learns from repeats how large the noise is
        for n, m in lengths:
            signal, kernel = random.random(n), random.random(m)
            times = {str(c["id"]): microseconds(signal, kernel, c) for c in CONFIGS}
            table.append(f"s{n}_f{m}", times, repeat)
    table.close()
    print(f"{options.folder}: {len(lengths)} scenarios x {len(CONFIGS)} configs, 2 repeats")


if __name__ == "__main__":
    main()
