"""Compilation for absent GPUs. In processes of their own: this one runs the interpreter."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from attn_kernels.offline import main

ROOT = Path(__file__).parents[2]

GENERATED = """
from types import SimpleNamespace
from typing import NamedTuple
class Config(NamedTuple):
    variant: str
    block_m: int
    tile_size: int
    num_warps: int
    num_stages: int
SMALL = Config("qblock", 16, 16, 4, 1)
LARGE = Config("qblock", 16, 256, 4, 5)
MODULES = {"nvidia_h100": SimpleNamespace(SMALL=SMALL, LARGE=LARGE, Config=Config, choose=None)}
"""


def python(folder, *arguments):
    """Run Python, without the interpreter's variable, where a folder comes before the repository."""
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    search = os.pathsep.join([str(folder), str(ROOT)])
    command = [sys.executable, *arguments]
    environment = kept | {"PYTHONPATH": search}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def offline(folder, *arguments):
    return python(folder, "-m", "attn_kernels.offline", "--jobs", "1", *arguments)


SHAPE = ("--block-m", "64", "--tile-size", "32", "--num-warps", "4")


@pytest.mark.parametrize("target, limit", [("sm_90", 232448), ("gfx942", 65536)])
def test_one_config(tmp_path, target, limit):
    result = offline(tmp_path, "--target", target, *SHAPE, "--num-stages", "2", "--head-sizes", "32")
    assert result.returncode == 0, result.stderr
    header, line, summary = result.stdout.splitlines()
    assert header.split()[:4] == ["config", "head", "shared", "bytes"]
    name, head_size, shared, registers, spills, fits = line.split()
    assert (name, head_size, spills, fits) == ("qblock_M64_T32_W4_S2", "32", "0", "yes")
    assert 32 * 32 * 2 <= int(shared) <= limit, "at least a tile of keys"
    assert 0 < int(registers) <= 512
    assert summary == f"1 of 1 fit {target} ({limit} bytes of shared memory a block)"


def test_every_config_of_a_generated_module(tmp_path):
    package = tmp_path / "generated"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "unified_attention.py").write_text(GENERATED)
    result = offline(tmp_path, "--target", "sm_90", "--head-sizes", "64", "--device-key", "nvidia_h100")
    assert result.returncode == 1, result.stderr
    _, small, large, summary = result.stdout.splitlines()
    assert small.split()[0] == "SMALL"
    assert small.endswith("yes")
    assert large.split()[0] == "LARGE"
    assert large.endswith("NO")
    assert summary.startswith("1 of 2 fit sm_90")


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("--block-m", "64"), "give --device-key, or all of --block-m"),
        ((*SHAPE[2:], "--block-m", "48", "--num-stages", "2"), "config.block_m is 48"),
        ((*SHAPE, "--num-stages", "2", "--head-sizes", "300"), "head_size is 300"),
        (("--device-key", "h100"), "device key is 'h100', but the generated modules are: amd_mi300x"),
        (("--device-key", "amd_mi300x"), "amd_mi300x has no config constants"),
        (
            ("--device-key", "amd_mi300x", "--block-m", "64"),
            "--device-key and config parameters were both given",
        ),
        ((*SHAPE, "--num-stages", "2"), "TRITON_INTERPRET is set"),
    ],
)
def test_wrong_use_is_one_line(arguments, message, monkeypatch, capsys):
    modules = SimpleNamespace(MODULES={"amd_mi300x": SimpleNamespace()})
    monkeypatch.setitem(sys.modules, "generated", SimpleNamespace(unified_attention=modules))
    assert main(["--target", "sm_90", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    assert len(captured.err.splitlines()) == 1


STEPS = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

class AbsentGPU:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)
    def get_current_device(self):
        return 0
    def get_current_stream(self, device):
        return 0

driver.set_active(AbsentGPU())
import attn_kernels
from attn_kernels import Config, launch
from attn_kernels.kernels import qblock
from attn_kernels.testing import make_batch

class CompileOnly:
    def __getitem__(self, grid):
        return lambda *args, **kwargs: compiled.append(kernel.warmup(*args, grid=grid, **kwargs))

compiled, kernel = [], qblock.qblock_kernel
qblock.qblock_kernel, launch._prepare_interpreter = CompileOnly(), lambda: None
for seqs, query_len, context_len in ((1, 1, 1), (2, 3, 20), (16, 1, 256), (33, 16, 999)):
    heads = {"num_query_heads": 8, "num_kv_heads": 2, "head_size": 32, "block_size": 16}
    batch = make_batch((query_len,) * seqs, (context_len,) * seqs, **heads)
    for offset in (0, 1):  # index tensors at any address
        index = torch.zeros(seqs + 1 + offset, dtype=torch.int32)[offset:].copy_(batch.cu_seqlens_q)
        plan = attn_kernels.plan(
            index, batch.seqused_k, batch.block_table, num_query_tokens=seqs * query_len,
            max_query_len=query_len, max_seq_len=context_len, dtype=batch.q.dtype,
            config=Config("qblock", 16, 16, 4, 2), **heads,
        )
        attn_kernels.run(plan, batch.q, batch.k_cache, batch.v_cache)
print(len(compiled), len(set(map(id, compiled))))
"""


def test_no_step_recompiles(tmp_path):
    """Triton's own dispatch, with every launch replaced by a compilation for a GPU that is not there."""
    result = python(tmp_path, "-c", STEPS)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == ["8", "1"], "launches, kernels"
