"""The Hopper kernel without a Hopper GPU: what it refuses, how it views caches, and the fallback."""

import dataclasses
import subprocess
import sys

import pytest
import torch
from kernel_cases import assert_close, random_batch

from attn_kernels import Config
from attn_kernels.core.structures import Layer
from attn_kernels.kernels import hopper
from attn_kernels.testing.poisoned import run_poisoned

DESCRIPTORS = Config("qblock", 128, 64, num_warps=8, num_stages=2, descriptors=1)


def layer_of(batch, **changes):
    plain = Layer(
        q=batch.q,
        k_cache=batch.k_cache,
        v_cache=batch.v_cache,
        out=torch.empty_like(batch.q),
        k_new=None,
        v_new=None,
        softmax_scale=0.1,
        sliding_window=None,
        softcap=0.0,
        alibi_slopes=None,
        sinks=None,
        k_scale=1.0,
        v_scale=1.0,
    )
    return dataclasses.replace(plain, **changes)


def why_not(head_size=64, block_size=16, ratio=4, config=DESCRIPTORS, change=lambda batch: {}):
    batch = random_batch(((3, 1), (20, 40)), ratio=ratio, head_size=head_size, block_size=block_size)
    return hopper.why_not(batch.plan(config=config), layer_of(batch, **change(batch)))


@pytest.mark.parametrize("head_size, block_size, ratio", [(64, 16, 4), (128, 48, 7), (256, 256, 1)])
def test_shapes_that_it_supports(head_size, block_size, ratio):
    assert why_not(head_size, block_size, ratio) is None


@pytest.mark.parametrize(
    "arguments, reason",
    [
        ({"head_size": 80}, "the head size is 80"),
        ({"block_size": 24}, "the page size is 24, not a multiple of 16"),
        ({"ratio": 129}, "more than 128 query heads"),
        ({"head_size": 256, "config": DESCRIPTORS._replace(tile_size=128)}, "bytes of shared memory"),
        ({"change": lambda batch: {"sliding_window": 5}}, "a sliding window or a soft cap"),
        ({"change": lambda batch: {"softcap": 5.0}}, "a sliding window or a soft cap"),
        ({"change": lambda batch: {"sinks": torch.ones(8)}}, "ALiBi slopes or sinks"),
        ({"change": lambda batch: {"alibi_slopes": torch.ones(8)}}, "ALiBi slopes or sinks"),
        ({"change": lambda batch: {"v_scale": 2.0}}, "are scaled"),
        ({"change": lambda batch: {"k_scale": torch.ones(1)}}, "are scaled"),
        ({"change": lambda batch: {"k_cache": batch.k_cache.to(torch.float8_e4m3fn)}}, "another dtype"),
        ({"change": lambda batch: {"q": shifted(batch.q)}}, "does not begin at a multiple of 16 bytes"),
        ({"change": lambda batch: {"out": gapped(batch.q, 3)}}, "rows are not multiples of 16 bytes apart"),
        ({"change": lambda batch: {"v_cache": pages_apart(batch.v_cache)}}, "not a whole number of slots"),
    ],
)
def test_reasons_against_a_layer(arguments, reason):
    assert reason in why_not(**arguments)


def shifted(tensor):
    room = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)
    return room[1:].view(tensor.shape)


def gapped(tensor, gap):
    *rows, size = tensor.shape
    return torch.empty(*rows, size + gap, dtype=tensor.dtype)[..., :size]


def pages_apart(cache):
    blocks, *page = cache.shape
    stride = cache.stride(0) + 8
    return torch.empty_strided((blocks, *page), (stride, *cache.stride()[1:]), dtype=cache.dtype)


@pytest.mark.parametrize("order", ["slots", "heads", "interleaved"])
def test_a_view_of_a_cache_finds_every_element(order):
    blocks, page_size, heads, size = 5, 16, 3, 64
    if order == "slots":
        cache = torch.empty(blocks, page_size, heads, size, dtype=torch.float16)
    elif order == "heads":
        cache = torch.empty(blocks, heads, page_size, size, dtype=torch.float16).transpose(1, 2)
    else:  # K and V of a page beside each other
        cache = torch.empty(blocks, 2, page_size, heads, size, dtype=torch.float16)[:, 0]
    view, (page_rows, head_rows, head_columns) = hopper.cache_view(cache, 16)
    for page, slot, head in ((0, 0, 0), (4, 15, 2), (3, 7, 1)):
        row = page * page_rows + head * head_rows + slot
        column = head * head_columns
        assert row < view.shape[0]
        assert column + size <= view.shape[1]
        assert row * view.strides[0] + column == (
            page * cache.stride(0) + slot * cache.stride(1) + head * cache.stride(2)
        )


def test_without_a_hopper_gpu_the_config_runs_through_pointers():
    batch = random_batch(((9, 1, 0), (20, 40, 3)), ratio=4, head_size=64)
    plan = batch.plan(config=DESCRIPTORS)
    assert_close(run_poisoned(batch, plan), batch.reference())


def test_attn_kernels_needs_no_gluon():
    """Gluon is experimental: the other kernels work with a Triton that lacks it."""
    code = (
        "import sys; sys.modules['triton.experimental'] = None\n"
        "import torch, attn_kernels\n"
        "from attn_kernels.kernels import hopper_gate\n"
        "assert hopper_gate.hopper_for(torch.device('cpu')) is None\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
