"""`@tuned` with its options on a GPU: what is timed, and what a CUDA graph captures."""

import types
from typing import Any, NamedTuple

import pytest
import torch
import triton
import triton.language as tl

from triton_tune import tuned

pytestmark = pytest.mark.gpu


class Config(NamedTuple):
    variant: str
    BLOCK: int
    num_warps: int


SLOW, OTHER, FALLBACK = (Config("doubled", block, 1) for block in (16, 1024, 64))


@triton.autotune(configs=[triton.Config({"BLOCK": b}, num_warps=1) for b in (16, 1024, 64)], key=["N"])
@triton.jit
def doubled(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, 2 * tl.load(x_ptr + at, mask=at < N), mask=at < N)


def package(vendor_alone):
    made: Any = types.ModuleType("doubled")
    tuned_for = types.SimpleNamespace(
        choose=lambda *, N: SLOW, candidates=lambda most, *, N: (SLOW, OTHER, FALLBACK)[:most]
    )

    def fallback(*, N):
        return FALLBACK

    made.MODULES = {"gpu": tuned_for, "default": types.SimpleNamespace(choose=fallback)}
    known = "" if vendor_alone else None
    made.key_for = lambda name, arch, vendor: "default" if vendor == known else "gpu"
    return made


@pytest.mark.parametrize(
    ("options", "vendor_alone"), [({"autotune": 2}, False), ({"unknown": "autotune"}, True), ({}, False)]
)
def test_nothing_is_timed_in_a_graph_and_the_fastest_is_launched_outside(options, vendor_alone, device):
    kernel = tuned(package(vendor_alone), **options)(doubled)
    x = torch.randn(1 << 22, device=device)
    y = torch.empty_like(x)

    def launch():
        kernel[lambda meta: (triton.cdiv(len(x), meta["BLOCK"]),)](x, y, len(x))
        return int(kernel.best_config.kwargs["BLOCK"])

    doubled.fn[(1 << 18,)](x, y, len(x), BLOCK=16, num_warps=1)  # compiled
    y.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert launch() == SLOW.BLOCK
    graph.replay()
    assert torch.equal(y, 2 * x)
    y.zero_()
    assert launch() == (OTHER if options else SLOW).BLOCK
    assert torch.equal(y, 2 * x)
