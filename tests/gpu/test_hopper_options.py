"""The Hopper kernel's log-sum-exps and splits of prompts are right, against float64 and poisoned memory.

`test_launches` has its other options, head sizes and configs.
"""

import os
import random
from itertools import product

import pytest
import torch
from kernel_cases import words_of
from launch_cases import LaunchCase

from attn_kernels import Config, Lengths
from attn_kernels.kernels import hopper_limits
from attn_kernels.kernels.hopper_launch import hopper_for
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.kernels.splits import most_hopper_splits
from attn_kernels.measure.batches import Batch, HeadLayout, ScoreOptions, chunked_prefill, varlen

pytestmark = pytest.mark.gpu
SEED = int(os.environ.get("ATTN_TEST_SEED", "0"))
K = 1024
CONFIGS = tuple(c for variant in VARIANTS.values() for c in variant.configs() if hopper_limits.asked_by(c))


def query_scale(words, number):
    """What multiplies the queries. The largest makes rows outgrow their first maximum (hopper_repeats).

    Beside sinks, it would leave heads almost no weight; fp8 queries lose digits of large scores.
    """
    largest = 4.0 if "sinks" in words else 16.0 if "fp8" in words else 256.0
    return (1.0, 4.0, largest)[number % 3]


def is_taken(config, batch, words):
    """Whether the kernel computes a case; else a launch would fall back to other kernels."""
    missing = words_of(words).keys() - {"after", "strides", "lse"} - hopper_limits.OPTIONS[config.variant]
    layout = batch.layout
    heads = layout.num_query_heads // layout.num_kv_heads
    shape = (layout.head_size, batch.block_size, heads, 1 if "fp8" in words else 2)
    return not missing and hopper_limits.unsupported_shape(config, *shape) is None


def lse_cases():
    """Log-sum-exps, also of a kernel that loads through pointers; queries of the last case see no key."""
    options = (
        "lse",
        "lse window=128 sinks=half strides=fused",
        "lse softcap=30 alibi",
        "noncausal lse window=128 sinks=half",
        "lse fp8 scales=tensor window=1000 sinks",
    )
    layouts = (HeadLayout(32, 8, 128), HeadLayout(16, 4, 80), HeadLayout(8, 1, 256))
    empty = Batch("empty", "decode", (1,) * 6, (0, 3, 40, 700, 0, 5000), scores=ScoreOptions(causal=False))
    settings = [(place, *pair) for place, pair in enumerate(product(layouts, options))]
    for number, layout, words in [*settings, (0, layouts[0], "noncausal lse")]:
        rng = random.Random(f"lse/{SEED}/{number}")
        lengths = varlen(rng.randrange(2**20), max_seqs=12, max_context=4 * K, max_tokens=4 * K)
        lengths = lengths if number or "noncausal" not in words else empty
        dtype = torch.float16 if number % 2 else torch.bfloat16
        batch = lengths.at(layout, (16, 64)[number % 5 % 2], dtype)
        taken = tuple(config for config in CONFIGS if is_taken(config, batch, words))
        # Queries of the largest scale outgrow their first maximum (hopper_q_blocks).
        scale = 1.0 if "sinks" in words or "fp8" in words else (1.0, 64.0)[number // 5 % 2]
        yield LaunchCase(SEED + number, batch, (Config("qblock", 16, 64), *taken), words, scale)


def split_cases():
    """Chunks of prompts with fewer tiles than an H100 has multiprocessors, some beside short ones."""
    uneven = Batch("uneven chunks", "chunk", (300, 0, 17, 1, 90), (20 * K, 9, 9 * K, 5, 90))
    settings = (
        (chunked_prefill(1, 512, 32 * K), HeadLayout(8, 1), "lse"),
        (uneven, HeadLayout(28, 4, 112), "sinks=half lse"),
        (uneven, HeadLayout(16, 2, 256), "softcap=30 alibi sinks"),
        (uneven, HeadLayout(16, 1, 192), "fp8 scales=tensor lse"),
        (uneven, HeadLayout(8, 1), "window=1000"),  # has one split
        (uneven, HeadLayout(32, 8, 80), "strides=fused"),
        (uneven, HeadLayout(16, 4, 160), ""),
        (uneven, HeadLayout(8, 1), "noncausal lse"),
        (uneven, HeadLayout(28, 4), "noncausal after=300"),
    )
    # Of heads of 160, the kernel for any GPU has smaller tiles than this config.
    configs = (*CONFIGS, Config.parse("qblock_M128_T128_W8_S2_D1"))
    for number, (batch, layout, words) in enumerate(settings):
        batch = batch.at(layout, dtype=torch.float16 if number % 2 else torch.bfloat16)
        prompts = (config for config in configs if config.variant == "qblock")
        taken = tuple(config for config in prompts if is_taken(config, batch, words))
        yield LaunchCase(SEED + number, batch, taken, words, query_scale(words, number))


SPLIT = list(split_cases())


@pytest.mark.parametrize("case", [*lse_cases(), *SPLIT], ids=lambda case: f"{case.batch.layout} {case.words}")
def test_options(case, device, compiled):
    if hopper_for(device) is None:
        pytest.skip("needs a Hopper GPU, and a Triton with the parts of Gluon that the kernel uses")
    assert case.configs, "the kernel refuses every config"
    lengths = Lengths.of(case.batch.query_lens, case.batch.context_lens)
    for config in case.configs if case in SPLIT else ():
        assert most_hopper_splits(config, case.batch.model, lengths, 132, 1 << 18)[0] > 1
    assert case.failures(device) == []
