"""Every variant is right with every option, against float64 and with poisoned memory.

`ATTN_TEST_BATCHES=500 ATTN_TEST_SEED=0 python -m pytest -m gpu tests/gpu/test_launches.py` draws so many
random batches; `-k "random_batch and 17"` repeats one.
"""

import dataclasses
import os
import random
import re

import pytest
import torch
from launch_cases import LaunchCase, draw_words

from attn_kernels import Config
from attn_kernels.choose.choices import configs_of
from attn_kernels.kernels.registry import VARIANTS
from attn_kernels.measure.batches import HeadLayout, ScoreOptions, decode, mixed, speculative, varlen
from generated import unified_attention

pytestmark = pytest.mark.gpu
BATCHES = int(os.environ.get("ATTN_TEST_BATCHES", "500"))
SEED = int(os.environ.get("ATTN_TEST_SEED", "0"))
K = 1024
GQA = (HeadLayout(32, 8), HeadLayout(28, 4), HeadLayout(16, 2))
SIZES = (HeadLayout(32, 8, 64), HeadLayout(16, 4, 256), HeadLayout(32, 8, 80), HeadLayout(24, 8, 96))
PAGES = (8, 16, 24, 32, 48, 64, 100, 128, 272, 528, 1024)
HOPPER_PAGES = (16, 128, 48, 256, 64)
DTYPES = (torch.bfloat16, torch.float16)
WINDOWS = (1, 17, 128, 1000, 2**31 - 1)
LATER_KEYS = ("noncausal", "noncausal", *(f"noncausal after={count}" for count in (0, 5, 200)))
HEADS = ((32, 8), (28, 4), (16, 2), (32, 1), (16, 16), (24, 8), (64, 8))  # query and KV heads
EVERY_SIZE = [HeadLayout(*HEADS[i % len(HEADS)], size) for i, size in enumerate(range(64, 257, 8))]
SETTINGS = 2 * len(EVERY_SIZE)  # of the random batches; a setting is what kernels are compiled for


def random_config(rng, head_size):
    """Draw a tile that tuning tries without the Hopper kernel, and that fits a large GPU's shared memory."""
    return rng.choice(
        [
            config
            for config in VARIANTS["qblock"].configs()
            if not config.tma
            and (config.block_m + 2 * config.tile_size * config.num_stages) * head_size <= 100 * K
        ]
    )


def hopper_configs(layout):
    """Configs of the Hopper kernel: those of prompts, of decodes, and of both, which need parts."""
    rows = max(16, 1 << (layout.num_query_heads // layout.num_kv_heads - 1).bit_length())
    roles = {name: VARIANTS[name].configs() for name in ("qblock", "stream_k", "pod")}
    prompts = [config for config in roles["qblock"] if config.tma]
    decodes = [config._replace(block_m=rows) for config in roles["stream_k"] if rows <= 64]
    both = roles["pod"] if layout.head_size <= 128 else []
    return [configs for configs in (prompts, decodes, both) if configs]


def with_empty(batch, rng):
    """Insert up to two sequences that have no query tokens, and perhaps no keys."""
    queries, contexts = list(batch.query_lens), list(batch.context_lens)
    for context in rng.choice(((), (), (50,), (0,), (0, 300))):
        place = rng.randint(0, len(queries))
        queries.insert(place, 0)
        contexts.insert(place, context)
    return dataclasses.replace(batch, query_lens=tuple(queries), context_lens=tuple(contexts))


def with_fewer_keys(batch, rng):
    """Some sequences have more queries than keys."""
    contexts = [
        rng.randint(0, query) if rng.random() < 0.5 else context
        for query, context in zip(batch.query_lens, batch.context_lens, strict=True)
    ]
    return batch.at(context_lens=tuple(contexts), scores=ScoreOptions(causal=False))


def random_cases(count):
    """The module's choice, a config without the Hopper kernel, and one of each role of the Hopper kernel.

    Only SETTINGS combinations of a layout, page size, types, options and configs are drawn, as each must
    be compiled. Half of them have fp8 caches.
    """
    for i in range(count):
        number = i % SETTINGS
        rng = random.Random(f"verify setting/{SEED}/{number}")
        layout = EVERY_SIZE[number % len(EVERY_SIZE)]
        words = draw_words(rng, fp8=number >= SETTINGS // 2)
        configs = (random_config(rng, layout.head_size), *map(rng.choice, hopper_configs(layout)))
        # Odd numbers have pages that the Hopper kernel reads.
        page = rng.choice(HOPPER_PAGES) if number % 2 else PAGES[number // 2 % len(PAGES)]
        setting = (layout, page, rng.choice(DTYPES))
        rng = random.Random(f"verify batch/{SEED}/{i}")
        words = re.sub(r"window=\d+", f"window={rng.choice(WINDOWS)}", words)
        words = words.replace("noncausal", rng.choice(LATER_KEYS))
        longest = rng.choice((256, 2 * K, 4 * K, 4 * K, 4 * K, 16 * K))
        lengths = varlen(SEED * 1_000_003 + i, max_seqs=24, max_context=longest, max_tokens=24 * K)
        scale = rng.choice((1.0, 1.0, 4.0))
        batch = with_empty(lengths.at(*setting), rng)
        batch = with_fewer_keys(batch, rng) if rng.random() < 0.25 else batch
        yield LaunchCase(i, batch, (None, *configs), words, scale, in_pairs=True)


def all_generated():
    """Every config of this vendor's generated modules and of the default one, sorted."""
    vendor = "amd" if torch.version.hip else "nvidia"
    modules = [
        module for key, module in unified_attention.MODULES.items() if key.startswith((vendor, "default"))
    ]
    return sorted({config for module in modules for config in configs_of(module)}, key=str)


def generated_cases():
    """Every config that a generated module of this vendor holds, at five settings."""
    settings = (
        (GQA[0], 16, torch.bfloat16),
        (GQA[1], 128, torch.bfloat16),
        (GQA[2], 24, torch.float16),
        (SIZES[2], 16, torch.bfloat16),
        (HeadLayout(32, 1), 16, torch.float16),
    )
    lengths = (decode(8, 2000), mixed(16, 0.5, 2000, 700), speculative(8, 7, 777))
    for i, setting in enumerate(settings):
        for j, batch in enumerate(lengths):
            yield LaunchCase(3 * i + j, batch.at(*setting), tuple(all_generated()))


def image_cases():
    """Tokens of images see each other. Half of the batches are planned for a graph."""
    gemma_3 = HeadLayout(16, 8, 256)
    settings = (
        (GQA[0], 16, "images=4"),
        (gemma_3, 16, "window=128 images=20"),
        (gemma_3, 64, "images=40 softcap=30 sinks=half"),
        (HeadLayout(28, 4, 80), 24, "window=1000 images=4 alibi strides=fused"),
        (GQA[0], 16, "window=128 images=4 fp8 scales=tensor"),
    )
    # The module's choice, tiles of decodes and of prompts, and one that the Hopper kernel leaves to another.
    named = ("qblock_M16_T32_W4_S2", "qblock_M64_T32_W4_S2", "qblock_M128_T64_W8_S2_D1")
    configs = (None, *map(Config.parse, named))
    for number, (layout, page, words) in enumerate(settings):
        for i in range(4):
            longest = (2 * K, 16 * K)[i % 2]
            lengths = varlen(100 * number + i, max_seqs=8, max_context=longest, max_tokens=16 * K)
            yield LaunchCase(i, lengths.at(layout, page), configs, words, in_pairs=True)


CASES = {
    "random_batch": random_cases(BATCHES if torch.cuda.is_available() else 1),
    "generated": generated_cases(),
    "images": image_cases(),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{kind} {case.seed}") for kind, cases in CASES.items() for case in cases]
)
def test_launches(case, device, compiled):
    assert case.failures(device) == []


def test_a_second_gpu_has_launches_of_its_own():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    for index in (0, 1, 0, 1):
        case = LaunchCase(index, mixed(6, 0.5, 700, 90), (None, *hopper_configs(GQA[0])[0][:1]))
        assert case.failures(torch.device("cuda", index)) == []
