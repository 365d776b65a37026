"""Nothing compiles in a serving trace after ``compile_ahead``, whatever the lengths of its batches.

A launch that compiles would stall a server for a second. `ATTN_TEST_STEPS=1000` sets the length of the trace.
"""

import math
import os
import random

import pytest
import torch

from attn_kernels import run
from attn_kernels.kernels.hopper_launch import hopper_for
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.kernels.schedule import divide_kernel, schedule_kernel
from attn_kernels.measure.batches import (
    HeadLayout,
    chunked_prefill,
    decode,
    mixed,
    prefill,
    speculative,
    varlen,
)
from attn_kernels.measure.tensors import plan_for, stand_in
from attn_kernels.warmup.compile_ahead import compile_ahead

pytestmark = pytest.mark.gpu
STEPS = int(os.environ.get("ATTN_TEST_STEPS", "1000"))
LAYOUTS = (HeadLayout(32, 8), HeadLayout(28, 4))
LONGEST, KV_TOKENS, QUERY_TOKENS = 1024, 32 * 1024, 8 * 1024  # about the most of a batch


def draw(rng):
    """Draw a batch of any kind."""

    def log_uniform(most):
        return round(math.exp(rng.random() * math.log(max(1, most))))

    context = log_uniform(LONGEST)
    n = log_uniform(min(256, KV_TOKENS // context))
    query = log_uniform(min(context, QUERY_TOKENS // n))
    seed = rng.randrange(1 << 30)
    batches = (
        decode(n, context),
        prefill(1, query),
        chunked_prefill(n, query, context),
        speculative(n, min(context, rng.randint(2, 8)), context),
        mixed(n, 0.9, context, query, seed),
        varlen(seed, n, context, KV_TOKENS),
    )
    return rng.choice(batches)


def count_by_kernel(device):
    """How many binaries of each of this package's kernels this process has compiled or loaded."""
    kernels = [kernel for variant in VARIANTS.values() for kernel in variant.kernels]
    kernels += [schedule_kernel, divide_kernel]
    hopper = hopper_for(device)
    if hopper is not None:
        kernels.append(hopper.hopper_kernel)
    return {kernel.fn.__name__: len(kernel.device_caches[device.index][0]) for kernel in kernels}


def test_nothing_compiles_after_warmup(device):
    assert not compile_ahead(device, [layout.model(16, torch.bfloat16) for layout in LAYOUTS]).failures
    before, drawn = count_by_kernel(device), random.Random(1)
    for number in range(STEPS):
        batch = draw(drawn).at(layout=LAYOUTS[number % 2])
        tensors = stand_in(batch, device)
        (kv,) = tensors.sets
        run(plan_for(tensors, in_parts=number % 4 > 1), kv.q, kv.k_cache, kv.v_cache, out=kv.out)
    torch.cuda.synchronize()
    assert count_by_kernel(device) == before
