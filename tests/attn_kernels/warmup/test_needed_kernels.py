"""The kernels that launches need are found without a GPU; in another process, as this one interprets."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
# Finds what launches need, compiles it in a process of its own, and looks again.
LOOK = """
import torch
from absent_gpu import absent_h100
from attn_kernels import Model
from attn_kernels.warmup.compile_ahead import fill_cache, launches_of
with absent_h100() as device:
    launches = launches_of(device, Model(2, 1, 16, 16, torch.bfloat16), device_key="default")
    filled = fill_cache(launches[:1], device, 1, lambda done, total: None)
    (found,) = filled.needed.values()
    print(len(found), filled.counts.jobs, filled.counts.failed, sum(one.is_cached for one in found.values()))
    print(sorted(one.name for one in found.values()))
"""


def test_what_a_launch_needs_is_found_compiled_and_then_in_the_cache(tmp_path):
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests/helpers")])
    environment = kept | {"PYTHONPATH": paths, "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", LOOK]
    for compiled in (4, 0):  # the second process finds them in the cache
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        counts, names = done.stdout.splitlines()
        assert counts == f"4 {compiled} 0 4", done.stderr
        assert names == str(["divide_kernel", "qblock_kernel", "reduce_kernel", "reduce_kernel"])
