"""Every leaf of every generated module compiles offline for its GPU and fits its shared memory.

Each leaf is compiled at the largest head size that its region admits, so that a launch anywhere in the
region needs no more. The default module is compiled for every architecture.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from treegen.compiler import compile_tree
from treegen.emit.python import device_module
from treegen.problem import pose
from treegen.spec import Config, Spec
from treegen.specfile import read_spec
from treegen.tablefile import read_table
from treegen.tree import Tree, leaves

REPOSITORY = Path(__file__).parents[1]
LARGEST_HEAD = 256
PAGE_SIZE = 16

# "nvidia" stands in for other NVIDIA GPUs, so it is compiled for another; "amd" is the tree of amd_mi300x.
ARCHITECTURES = {
    "nvidia_h100": "sm_90",
    "nvidia_h200": "sm_90",
    "amd_mi300x": "gfx942",
    "nvidia": "sm_80",
    "amd": "gfx942",
}

COMPILE = """
import json, sys
import torch
from concurrent.futures import ProcessPoolExecutor
from attn_kernels.offline import compile_config
from generated.unified_attention import Config

def compile_one(job):
    target, config, head_size, block_size = job
    used = compile_config(Config(**config), target=target, head_size=head_size, block_size=block_size,
                          queries_per_kv=4, dtype=torch.bfloat16)
    return max(one.shared_bytes for one in used.values())

if __name__ == "__main__":
    jobs = json.load(sys.stdin)
    with ProcessPoolExecutor(2) as pool:
        print(json.dumps(list(pool.map(compile_one, jobs))))
"""


def largest_head(region: object) -> int:
    assert isinstance(region, dict)
    _, greatest = region.get("head_size", (None, None))
    return LARGEST_HEAD if greatest is None else min(greatest, LARGEST_HEAD)


def described(config: Config) -> dict[str, object]:
    return {"variant": config.variant, **dict(config.parameters)}


@pytest.fixture(scope="module")
def spec() -> Spec:
    return read_spec(REPOSITORY / "treegen.yaml")


@pytest.fixture(scope="module")
def trees(spec: Spec) -> dict[str, Tree]:
    """The trees behind the committed modules."""
    kernel = spec.kernels["unified_attention"]
    found: dict[str, Tree] = {}
    for key, folder in kernel.tables.items():
        device = spec.devices[key]
        found[key] = compile_tree(pose(kernel, device, read_table(folder)))
        module = spec.output / kernel.name / f"{key}.py"
        assert module.read_text() == device_module(kernel, key, device.limits, found[key]), (
            f"{module} is stale"
        )
    return found


def test_every_leaf_fits_its_gpu(spec: Spec, trees: dict[str, Tree], tmp_path: Path) -> None:
    kernel = spec.kernels["unified_attention"]
    wanted: dict[tuple[str, Config, int], int] = {}
    for key, tree in trees.items():
        for leaf, region in leaves(tree):
            case = (ARCHITECTURES[key], leaf.config, largest_head(region))
            limit = spec.devices[key].limits["shared_memory"]
            wanted[case] = min(limit, wanted.get(case, limit))
    for key, target in ARCHITECTURES.items():
        smallest = spec.devices[spec.devices[key].vendor].limits[
            "shared_memory"
        ]  # what any GPU of the vendor has
        wanted[target, kernel.fallback, LARGEST_HEAD] = smallest
    # The largest tiles take longest to compile: first, so that the processes end together.
    cases = sorted(wanted, key=lambda case: -dict(case[1].parameters)["tile_size"])
    jobs = [[target, described(config), head, PAGE_SIZE] for target, config, head in cases]
    limits = [wanted[case] for case in cases]

    script = tmp_path / "compile.py"
    script.write_text(COMPILE)
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(REPOSITORY)
    done = subprocess.run(
        [sys.executable, script], input=json.dumps(jobs), env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-4000:]
    used = json.loads(done.stdout)
    too_large = [
        f"{job}: {u} > {limit}" for job, u, limit in zip(jobs, used, limits, strict=True) if u > limit
    ]
    assert not too_large, "\n".join(too_large)
