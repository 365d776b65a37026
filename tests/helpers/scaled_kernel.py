"""A file for `triton-tune` with small kernels, some of whose configs are wrong."""

import torch
import triton
import triton.language as tl

from triton_tune import Tuning


def _config(block: int, mode: int = 0) -> triton.Config:
    return triton.Config({"BLOCK": block, "MODE": mode}, num_warps=1, num_stages=1)


def without_large(configs, arguments, **keywords):
    """A block that is larger than the row is left out."""
    return [config for config in configs if config.kwargs["BLOCK"] <= max(16, arguments["N"])]


@triton.autotune(
    configs=[_config(16), _config(32), _config(64), _config(16, 1), _config(16, 3)],
    key=["N", "FLAG"],
    prune_configs_by={"early_config_prune": without_large},
)
@triton.jit
def scaled(x_ptr, y_ptr, N, FLAG: tl.constexpr, BLOCK: tl.constexpr, MODE: tl.constexpr):
    """y = 2 x, or 3 x with FLAG. MODE 1 adds one; MODE 3 leaves the last block unwritten."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < N, other=0)
    y = x * 3 if FLAG else x * 2
    if MODE == 1:
        y += 1
    last = N - BLOCK if MODE == 3 else N
    tl.store(y_ptr + at, y, mask=at < last)


def scale(x, flag):
    y = torch.empty_like(x)
    scaled[lambda meta: (triton.cdiv(len(x), meta["BLOCK"]),)](x, y, len(x), flag)
    return y


def arguments(size, flag, dtype):
    return torch.randn(size).to(dtype), flag


TUNING = Tuning(
    kernel=scaled,
    call=scale,
    arguments=arguments,
    reference=lambda x, flag: x * (3 if flag else 2),
    shapes=[
        {"size": size, "flag": flag, "dtype": dtype}
        for size in (7, 40, 100)
        for flag in (False, True)
        for dtype in (torch.float32, torch.float16)
    ],
)


@triton.autotune(
    configs=[_config(16), _config(32)], key=["N"], reset_to_zero=["total_ptr"], restore_value=["x_ptr"]
)
@triton.jit
def added(x_ptr, total_ptr, N, BLOCK: tl.constexpr, MODE: tl.constexpr):
    """Add x to the total, and one to x."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < N, other=0)
    tl.atomic_add(total_ptr, tl.sum(x))
    tl.store(x_ptr + at, x + 1, mask=at < N)


def add(x):
    total = torch.zeros(1)
    added[lambda meta: (triton.cdiv(len(x), meta["BLOCK"]),)](x, total, N=len(x))
    return total, x


ADDED = Tuning(
    kernel=added,
    call=add,
    arguments=lambda size: [torch.randn(size)],
    reference=lambda x: (x.sum()[None], x + 1),
    shapes=[{"size": 10}, {"size": 50}],
    name="sums",
)
