"""Triton's cache, filled for a GPU that this machine lacks; in another process, as this one interprets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attn_kernels.offline import fill_cache
from attn_kernels.offline.fill_cache import main

ROOT = Path(__file__).parents[3]
HEADS = "--device-key default --target sm_90 --heads 2/1/16"
# Finds what launches need, compiles one of these kernels in a process of its own, and looks again.
LOOK = """
import torch
from attn_kernels import Model
from attn_kernels.offline.absent_gpu import absent_gpu
from attn_kernels.warmup.compile_ahead import fill_cache, launches_of
with absent_gpu("sm_90", 132) as device:
    launches = launches_of(device, Model(2, 1, 16, 16, torch.bfloat16), device_key="default")
    filled = fill_cache(launches[:1], device, 1, lambda done, total: None)
    (found,) = filled.needed.values()
    print(len(found), filled.counts.jobs, filled.counts.failed, sum(one.is_cached for one in found.values()))
    print(sorted(one.name for one in found.values()))
"""


def test_what_a_launch_needs_is_found_compiled_and_then_in_the_cache(tmp_path):
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment = kept | {"PYTHONPATH": str(ROOT), "TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-W", "ignore", "-c", LOOK]
    for compiled in (4, 0):  # the second process finds them in the cache
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        counts, names = done.stdout.splitlines()
        assert counts == f"4 {compiled} 0 4", done.stderr
        assert names == str(["divide_kernel", "qblock_kernel", "reduce_kernel", "reduce_kernel"])


@pytest.mark.parametrize(
    "arguments, name",
    [
        ("--device-key h100 --target sm_90 --heads 2/1/16", "device_key"),
        ("--device-key default --target sm_91 --heads 2/1/16", "--target"),
        ("--device-key default --target sm_90 --heads 2x1x16", "--heads"),
        ("--device-key default --target sm_90 --heads 3/2/16", "num_query_heads"),
        (f"{HEADS} --page 0", "block_size"),
        (f"{HEADS} --features window,sink", "features"),
        (f"{HEADS} --jobs 0", "--jobs"),
    ],
)
def test_wrong_use_is_one_line_and_fills_nothing(arguments, name, monkeypatch, capsys):
    monkeypatch.setattr(fill_cache.knobs.runtime, "interpret", False)
    monkeypatch.setattr(fill_cache, "fill_cache", lambda *given: pytest.fail("it was filled"))
    assert main(arguments.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert name in line
