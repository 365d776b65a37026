"""A package of autotuned kernels as strangers write them, and a program that launches them all."""

from pathlib import Path

KERNELS = """
import torch
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (16, 64) for warps in (1, 4)]


@triton.autotune(configs=CONFIGS, key=["size"], restore_value=["x_ptr"])
@triton.jit
def scale_in_place(x_ptr, size, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < size) * factor, mask=at < size)


@triton.heuristics({"EVEN": lambda args: args["size"] % 16 == 0})
@triton.autotune(
    configs=[triton.Config({"PARTS": parts}, num_warps=warps) for parts in (1, 4) for warps in (1, 4)],
    key=["size"],
)
@triton.jit
def sum_in_parts(x_ptr, out_ptr, size, EVEN: tl.constexpr, PARTS: tl.constexpr):  # into zeros of the caller
    part = tl.program_id(0)
    total = 0.0
    for begin in range(part * 16, size, PARTS * 16):
        at = begin + tl.arange(0, 16)
        total += tl.sum(tl.load(x_ptr + at, mask=at < size, other=0.0))
    tl.atomic_add(out_ptr, total)


@triton.autotune(configs=CONFIGS, key=["size"])
@triton.jit
def gather(x_ptr, index_ptr, out_ptr, size, rows, BLOCK: tl.constexpr):  # rows of -1 are left alone
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + at, mask=at < size, other=-1)
    inside = (index >= 0) & (index < rows)
    tl.store(out_ptr + at, tl.load(x_ptr + index, mask=inside), mask=inside)


@triton.autotune(configs=CONFIGS, key=["size"])
@triton.jit
def sums_of_blocks(x_ptr, out_ptr, size, BLOCK: tl.constexpr):  # what it writes depends on BLOCK
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + at, mask=at < size, other=0.0)))


@triton.autotune(configs=CONFIGS, key=["size"])
@triton.jit
def overruns(out_ptr, size, BLOCK: tl.constexpr):  # writes 8 elements behind its tensor
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, 1.0, mask=at < size + 8)


@triton.autotune(configs=CONFIGS, key=["size"])
@triton.jit
def unrecorded(x_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, at, mask=at < size)


def blocks(size):
    return lambda config: (triton.cdiv(size, config["BLOCK"]),)


def step(size):
    x = torch.arange(size, dtype=torch.float32)
    scale_in_place[blocks(size)](x, size, 2.0)
    total = torch.zeros(1)
    sum_in_parts[lambda config: (config["PARTS"],)](x, total, size)
    index = torch.arange(size - 1, -1, -1)
    index[::2] = -1
    gathered = torch.full((size,), -1.0)
    gather[blocks(size)](x, index, gathered, size, size)
    parts = torch.zeros(size)
    sums_of_blocks[blocks(size)](x, parts, size)
    memory = torch.zeros(size + 8)
    overruns[blocks(size + 8)](torch.from_numpy(memory.numpy()[:size]), size)
    return x, total, gathered, parts
"""
PROGRAM = """
import sys
import torch
import small

for _ in range(3):
    for size in map(int, sys.argv[1:]):
        x, total, gathered, parts = small.step(size)
        assert torch.equal(x, 2.0 * torch.arange(size))
        assert float(total) == float(parts.sum()) == size * (size - 1)
        expected = torch.arange(size - 1, -1, -1) * 2.0
        expected[::2] = -1
        assert torch.equal(gathered, expected)
"""


def write(folder: Path, kernels: str = KERNELS) -> None:
    (folder / "small.py").write_text(kernels)
    (folder / "program.py").write_text(PROGRAM)
