"""Let Triton's autotuner write its cache files, without a GPU and with given times.

Run it in a process of its own without TRITON_INTERPRET; TRITON_CACHE_DIR names the folder.
"""

import math

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

# Milliseconds of three configs by key; the third config fails for the first key.
TIMES = {
    (1000, False, "torch.float32"): (0.004, 0.006, math.inf),
    (1 << 20, True, "torch.float16"): (0.09, 0.03, 0.05),
}


class _Driver:
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


@triton.jit
def scale(x, y, n, causal, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * 2, mask=at < n)


def main() -> None:
    driver.set_active(_Driver())
    configs = [triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((64, 2), (1024, 4), (4096, 32))]
    tuned = triton.autotune(configs=configs, key=["n", "causal"], cache_results=True)(scale)
    for key, times in TIMES.items():

        def measure(key=key, times=times) -> None:
            tuned.cache[key] = configs[0]
            pairs = zip(configs, times, strict=True)
            tuned.configs_timings = {config: [time, time, time] for config, time in pairs}

        tuned.check_disk_cache(key, configs, measure)


if __name__ == "__main__":
    main()
