"""Named sets of batches. The most important come first, because a time budget may cut a run short."""

from collections.abc import Callable

import torch

from attn_kernels.measure.batches import (
    Batch,
    HeadLayout,
    ScoreOptions,
    chunked_prefill,
    decode,
    mixed,
    prefill,
    speculative,
    varlen,
)
from benchmarks.attention.drawn_batches import rivals, steps, tiny_steps, uneven

K = 1024
QWEN_7B = HeadLayout(28, 4)
MULTI_HEAD = HeadLayout(32, 32)
FEW_HEADS = HeadLayout(16, 2)
SMALL_HEADS = HeadLayout(32, 8, 64)
LARGE_HEADS = HeadLayout(16, 8, 256)
OTHER_LAYOUTS = (QWEN_7B, MULTI_HEAD, FEW_HEADS, SMALL_HEADS, LARGE_HEADS)


def across(layouts: tuple[HeadLayout, ...], batches: list[Batch]) -> list[Batch]:
    """Return every batch at every head layout."""
    return [batch.at(layout=layout) for layout in layouts for batch in batches]


def core() -> list[Batch]:
    """Return 31 batches as servers form them, about half of them decode; 21 have Llama-3-8B's heads.

    They have 1 to 256 sequences and contexts of 512 to 64K. They were chosen before any was measured.
    """
    return [
        decode(64, 8 * K),
        decode(1, 8 * K),
        prefill(1, 2 * K),
        mixed(64, 0.98, 4 * K, 512),
        decode(16, K),
        chunked_prefill(1, 2 * K, 8 * K),
        decode(256, K),
        decode(8, 8 * K),
        prefill(1, 8 * K),
        mixed(64, 0.5, 4 * K, 512),
        prefill(1, 8 * K).at(block_size=128),
        decode(64, 4 * K).at(QWEN_7B),
        decode(16, 2 * K).at(MULTI_HEAD),
        decode(64, 4 * K).at(FEW_HEADS),
        prefill(1, 4 * K).at(QWEN_7B),
        mixed(64, 0.98, 4 * K, 512).at(FEW_HEADS),
        decode(32, 2 * K).at(SMALL_HEADS),
        decode(32, 2 * K).at(LARGE_HEADS),
        prefill(1, 4 * K).at(MULTI_HEAD),
        decode(1, 8 * K).at(FEW_HEADS),
        mixed(64, 0.98, 4 * K, 512).at(QWEN_7B),
        decode(1, K),
        speculative(32, 4, 4 * K),
        decode(32, 16 * K),
        prefill(1, 512),
        decode(128, 512),
        varlen(0),
        decode(4, 64 * K),
        chunked_prefill(8, 512, 4 * K),
        prefill(4, 2 * K),
        decode(1, 64 * K),
    ]


def decode_grid() -> list[Batch]:
    """Return decode of 1 to 256 sequences with contexts of 128 to 64K, at most 2M tokens in all."""
    sizes = [(n, context) for context in (128, K, 8 * K, 64 * K) for n in (1, 4, 16, 64, 256)]
    return [decode(n, context) for n, context in sizes if n * context <= 2 * K * K]


def prefill_grid() -> list[Batch]:
    """Return whole prompts of 128 to 32K tokens, and chunks of prompts with contexts of 2K to 64K."""
    prompts = [(1, 128), (1, 512), (1, 2 * K), (1, 8 * K), (1, 32 * K), (8, 128), (8, K), (32, 512)]
    chunks = [(1, 512, 2 * K), (1, 2 * K, 8 * K), (1, 2 * K, 64 * K), (8, 256, 8 * K)]
    return [*(prefill(*shape) for shape in prompts), *(chunked_prefill(*shape) for shape in chunks)]


def mixed_grid() -> list[Batch]:
    """Return decode shares of 0, 50, 98 and 100% at three sizes, speculative decoding and random batches."""
    sizes = ((48, 8 * K, 2 * K), (64, 4 * K, 512), (256, 2 * K, 512))
    shares = [
        mixed(n, share, context, chunk) for share in (0.0, 0.5, 0.98, 1.0) for n, context, chunk in sizes
    ]
    spec = [speculative(n, query, 4 * K) for n in (4, 64) for query in (2, 8)]
    return [*shares, *spec, *(varlen(seed) for seed in range(4))]


def layouts() -> list[Batch]:
    """Return six batches at every head layout but Llama-3-8B's."""
    decodes = [decode(1, 8 * K), decode(16, 2 * K), decode(64, 4 * K)]
    others = [prefill(1, 2 * K), chunked_prefill(1, K, 8 * K), mixed(64, 0.98, 4 * K, 512)]
    return across(OTHER_LAYOUTS, [*decodes, *others])


def full() -> list[Batch]:
    """Return the three grids at Llama-3-8B's heads, then `layouts`."""
    return [*decode_grid(), *prefill_grid(), *mixed_grid(), *layouts()]


def fp8() -> list[Batch]:
    """Return decode whose time is that of reading caches, in bf16 and in fp8 (e4m3)."""
    batches = [decode(64, 8 * K), decode(16, 8 * K), decode(256, K), decode(8, 32 * K)]
    return [batch.at(cache_dtype=dtype) for batch in batches for dtype in (None, torch.float8_e4m3fn)]


def models() -> list[Batch]:
    """Return the score options, head sizes and fp8 caches of models beside Llama's, each at its own heads."""
    gpt_oss, gemma_2 = HeadLayout(64, 8, 64), HeadLayout(16, 8, 256)
    phi_3, stable_lm, latent = HeadLayout(32, 32, 96), HeadLayout(32, 32, 80), HeadLayout(16, 1, 192)
    sinks, capped = ScoreOptions(sinks=True), ScoreOptions(softcap=50.0)
    local_sinks = ScoreOptions(window=128, sinks=True)
    local_capped, local = ScoreOptions(window=4 * K, softcap=50.0), ScoreOptions(window=4 * K)
    uneven_prompts = tuple(n * K for n in (1, 2, 3, 4))
    one_of_four = Batch("prefill 4xup to 4K", "prefill", uneven_prompts, uneven_prompts)
    step = mixed(32, 31 / 32, 8 * K, K)
    fp8 = torch.float8_e4m3fn
    return [
        prefill(1, 8 * K).at(gpt_oss, scores=sinks),
        one_of_four.at(gpt_oss, scores=local_sinks),
        step.at(gpt_oss, scores=sinks),
        prefill(2, 4 * K).at(gemma_2, scores=capped),
        prefill(1, 8 * K).at(gemma_2, scores=local_capped),
        prefill(1, 16 * K).at(scores=local),
        decode(32, 16 * K).at(scores=local),
        prefill(2, 4 * K).at(phi_3),
        prefill(2, 4 * K).at(stable_lm),
        prefill(2, 4 * K).at(latent),
        decode(16, 4 * K).at(latent),
        prefill(1, 8 * K).at(cache_dtype=fp8),
        decode(64, 8 * K).at(cache_dtype=fp8),
        step.at(cache_dtype=fp8),
        prefill(1, 8 * K),
        decode(64, 8 * K),
        decode(32, 2 * K).at(gpt_oss, scores=local_sinks),
        prefill(2, 4 * K).at(HeadLayout(28, 4, 112)),
        prefill(2, 4 * K).at(HeadLayout(16, 4, 160)),
    ]


def quick() -> list[Batch]:
    """Return the six most telling batches."""
    return [
        decode(1, 8 * K),
        decode(64, 8 * K),
        prefill(1, 2 * K),
        prefill(1, 8 * K),
        chunked_prefill(1, 2 * K, 8 * K),
        mixed(64, 0.98, 4 * K, 512),
    ]


def tiny() -> list[Batch]:
    """Return batches of a few tokens, for Triton's interpreter."""
    shapes = [
        decode(2, 40),
        prefill(1, 24),
        chunked_prefill(2, 5, 40),
        speculative(2, 3, 33),
        mixed(4, 0.5, 32, 16),
        varlen(0, max_seqs=4, max_context=48, max_tokens=160),
    ]
    return [*across((HeadLayout(4, 2, 32),), shapes), prefill(1, 24).at(layout=HeadLayout(2, 2, 32))]


BATCH_SETS: dict[str, Callable[[], list[Batch]]] = {
    "core": core,
    "decode": decode_grid,
    "prefill": prefill_grid,
    "mixed": mixed_grid,
    "layouts": layouts,
    "full": full,
    "fp8": fp8,
    "models": models,
    "quick": quick,
    "steps": steps,
    "uneven": uneven,
    "rivals": rivals,
    "tiny": tiny,
    "tiny_steps": tiny_steps,
}


def select(
    name: str,
    *,
    only: str = "",
    heads: tuple[HeadLayout, ...] = (),
    block_size: int | None = None,
    dtype: str | None = None,
) -> list[Batch]:
    """Return a named set, each batch once.

    `only` keeps the batches whose text contains it. `heads` replaces the set's head layouts. `dtype` is
    the name of a torch type.
    """
    element_type = getattr(torch, dtype) if dtype else None
    batches = [batch.at(block_size=block_size, dtype=element_type) for batch in BATCH_SETS[name]()]
    if heads:
        batches = across(heads, batches)
    return [batch for batch in dict.fromkeys(batches) if only in str(batch)]
