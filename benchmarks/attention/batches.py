"""Named sets of batches. The most important come first, because a time budget may cut a run short.

All but `drafts` were chosen before any was measured. Lengths "up to C" are log-uniform from C / 8 to C,
drawn by a generator that the batch's name seeds, or in `drafts` by one for all.
"""

import math
import random
from collections.abc import Callable, Sequence

import torch

from attn_kernels.measure.batches import (
    LLAMA_3_8B,
    Batch,
    HeadLayout,
    ScoreOptions,
    chunked_prefill,
    decode,
    mixed,
    prefill,
    short,
    speculative,
    varlen,
)

K = 1024
SPREAD = 8  # the longest length a batch allows over the shortest
QWEN_7B = HeadLayout(28, 4)
MULTI_HEAD = HeadLayout(32, 32)
FEW_HEADS = HeadLayout(16, 2)
SMALL_HEADS = HeadLayout(32, 8, 64)
LARGE_HEADS = HeadLayout(16, 8, 256)


def core() -> list[Batch]:
    """31 batches as servers form them, about half of them decode; 21 have Llama-3-8B's heads.

    They have 1 to 256 sequences and contexts of 512 to 64K.
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


def models() -> list[Batch]:
    """The score options, head sizes and fp8 caches of models beside Llama's, each at its own."""
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


def noncausal() -> list[Batch]:
    """Encoders, cross-attention, and drafts that see each other behind a cached context."""
    layouts = (LLAMA_3_8B, MULTI_HEAD, SMALL_HEADS, LARGE_HEADS, QWEN_7B)
    encoders = [prefill(1, 8 * K), prefill(4, 2 * K), prefill(32, 512), varlen(0)]
    cross = Batch("cross 8x256@2K", "prefill", (256,) * 8, (2 * K,) * 8)
    behind = [speculative(32, 4, 4 * K), chunked_prefill(8, 16, 8 * K), chunked_prefill(1, 512, 32 * K)]
    heads = [prefill(2, 4 * K).at(layout) for layout in layouts]
    every = [*encoders, *heads, cross, *behind, prefill(1, 8 * K).at(cache_dtype=torch.float8_e4m3fn)]
    return [batch.at(scores=ScoreOptions(causal=False)) for batch in every]


def heads_512() -> list[Batch]:
    """Heads of 512, as in the global layers of Gemma 4's E4B, 26B-A4B and 31B, and of 320."""
    small, medium, large = HeadLayout(8, 2, 512), HeadLayout(16, 2, 512), HeadLayout(32, 4, 512)
    heads_320, fp8 = HeadLayout(16, 4, 320), torch.float8_e4m3fn
    step = mixed(32, 31 / 32, 8 * K, K)
    return [
        prefill(1, 2 * K).at(medium),
        decode(16, 4 * K).at(small),
        prefill(1, 8 * K).at(large),
        decode(64, K).at(medium),
        prefill(1, 8 * K).at(large, cache_dtype=fp8),
        decode(16, 4 * K).at(small, cache_dtype=fp8),
        decode(1, 32 * K).at(large),
        step.at(medium),
        step.at(medium, cache_dtype=fp8),
        prefill(1, 2 * K).at(heads_320),
        decode(16, 4 * K).at(heads_320),
    ]


# Of each layout, the sequences, the drafts of each and the context.
DRAFTS: dict[HeadLayout, Sequence[tuple[int, int, int]]] = {
    HeadLayout(32, 2): ((8, 5, 20 * K), (16, 4, 20 * K), (4, 8, 20 * K), (1, 4, 16 * K), (64, 3, 2 * K)),
    HeadLayout(64, 4): ((32, 5, 8 * K), (8, 2, 32 * K), (2, 8, 4 * K)),
    LLAMA_3_8B: ((16, 5, 4 * K), (32, 8, 4 * K), (4, 5, 32 * K), (1, 8, 8 * K)),
    HeadLayout(64, 8): ((64, 3, 4 * K), (16, 8, 2 * K), (2, 4, 64 * K)),
    QWEN_7B: ((16, 5, 8 * K), (4, 3, 16 * K)),
    HeadLayout(64, 8, 64): ((16, 5, 8 * K), (4, 8, 32 * K)),
    HeadLayout(16, 2, 256): ((16, 4, 8 * K), (2, 6, 32 * K)),
    LARGE_HEADS: ((16, 8, 4 * K),),
    HeadLayout(16, 1, 192): ((16, 4, 8 * K),),
}
# With contexts up to the last number.
UNEVEN_DRAFTS: dict[HeadLayout, tuple[int, int, int]] = {
    HeadLayout(32, 2): (16, 5, 32 * K),
    HeadLayout(64, 8): (32, 4, 16 * K),
    LLAMA_3_8B: (24, 6, 8 * K),
    QWEN_7B: (48, 4, 4 * K),
}


def drafts() -> list[Batch]:
    """27 batches of speculative decoding with 16 to 128 query rows; 23 have contexts of one length."""
    batches = [speculative(*sizes).at(layout) for layout, rows in DRAFTS.items() for sizes in rows]
    rng = random.Random(0)
    for layout, (num_seqs, tokens, longest) in UNEVEN_DRAFTS.items():
        name = f"spec {num_seqs}x{tokens}@up to {short(longest)}"
        contexts = up_to(longest, num_seqs, rng)
        batches.append(Batch(name, "spec", (tokens,) * num_seqs, contexts, layout))
    return batches


def up_to(longest: int, count: int, rng: random.Random) -> tuple[int, ...]:
    """Draw `count` log-uniform lengths from an eighth of `longest` to `longest`."""
    return tuple(max(1, round(longest * math.exp(-rng.random() * math.log(SPREAD)))) for _ in range(count))


def step(decodes: int, longest: int, chunk: int, context: int, layout: HeadLayout = LLAMA_3_8B) -> Batch:
    """Decodes with contexts up to `longest`, then one chunk of a prompt that ends `context` tokens."""
    name = f"step {decodes}x{short(longest)}+{short(chunk)}@{short(context)}"
    contexts = up_to(longest, decodes, random.Random(f"{name}/{layout}"))
    return Batch(name, "mixed", (1,) * decodes + (chunk,), (*contexts, context), layout)


def step_of_prompts(decodes: int, prompts: int, longest: int, layout: HeadLayout = LLAMA_3_8B) -> Batch:
    """Decodes with contexts up to `longest`, then whole prompts of as many tokens."""
    name = f"step {decodes}x{short(longest)}+{prompts}x{short(longest)}"
    rng = random.Random(f"{name}/{layout}")
    contexts, lengths = up_to(longest, decodes, rng), up_to(longest, prompts, rng)
    return Batch(name, "mixed", (1,) * decodes + lengths, contexts + lengths, layout)


# Decodes, their longest context, the chunk and its context: a fixed table of steps of 4 to 256 decodes,
# chunks of 256 to 4K and contexts of 1K to 64K. Each step has at most 4 GiB of keys and values.
GRID: dict[HeadLayout, Sequence[tuple[int, int, int, int]]] = {
    LLAMA_3_8B: (
        (4, 64 * K, 256, 16 * K),
        (16, 8 * K, 4 * K, 4 * K),
        (32, 32 * K, K, K),
        (64, K, 2 * K, 16 * K),
        (128, 4 * K, 512, 64 * K),
        (256, K, 256, K),
    ),
    HeadLayout(28, 4): (
        (4, K, 4 * K, 32 * K),
        (8, 16 * K, 2 * K, 2 * K),
        (24, 64 * K, 512, 4 * K),
        (64, 8 * K, K, 8 * K),
        (128, 2 * K, 256, 2 * K),
        (256, 4 * K, 2 * K, 4 * K),
    ),
    HeadLayout(64, 8): (
        (4, 16 * K, K, 64 * K),
        (16, 64 * K, 2 * K, 8 * K),
        (48, 4 * K, 256, K),
        (96, 8 * K, 4 * K, 8 * K),
        (256, 2 * K, 512, 4 * K),
    ),
    HeadLayout(8, 1): (
        (8, 64 * K, 512, 512),
        (32, 16 * K, 4 * K, 16 * K),
        (64, 64 * K, 2 * K, 32 * K),
        (128, 8 * K, K, 4 * K),
        (256, 16 * K, 256, 8 * K),
    ),
}


def steps() -> list[Batch]:
    """29 serving steps: seven of Llama-3-8B's, then `GRID`."""
    llama = [
        step(31, 8 * K, 512, 8 * K),
        step(63, 4 * K, 2 * K, 4 * K),
        step(7, 32 * K, K, 32 * K),
        step(15, 16 * K, 2 * K, 16 * K),
        step(127, 2 * K, 512, 512),
        step(63, 12 * K, K, 4 * K),
        step_of_prompts(16, 16, 2 * K),
    ]
    return [*llama, *(step(*sizes, layout) for layout, rows in GRID.items() for sizes in rows)]


def tiny() -> list[Batch]:
    """Batches of a few tokens, for Triton's interpreter."""
    shapes = [
        decode(2, 40),
        prefill(1, 24),
        chunked_prefill(2, 5, 40),
        speculative(2, 3, 33),
        mixed(4, 0.5, 32, 16),
        varlen(0, max_seqs=4, max_context=48, max_tokens=160),
    ]
    return [*(batch.at(HeadLayout(4, 2, 32)) for batch in shapes), prefill(1, 24).at(HeadLayout(2, 2, 32))]


BATCH_SETS: dict[str, Callable[[], list[Batch]]] = {
    "core": core,
    "models": models,
    "noncausal": noncausal,
    "heads_512": heads_512,
    "drafts": drafts,
    "steps": steps,
    "tiny": tiny,
}


def select(
    name: str,
    *,
    only: str = "",
    heads: Sequence[HeadLayout] = (),
    block_size: int | None = None,
    dtype: str | None = None,
) -> list[Batch]:
    """A named set, each batch once.

    `only` keeps the batches whose text contains it. `heads` replaces the set's head layouts. `dtype` is
    the name of a torch type.
    """
    element_type = getattr(torch, dtype) if dtype else None
    batches = [batch.at(block_size=block_size, dtype=element_type) for batch in BATCH_SETS[name]()]
    if heads:
        batches = [batch.at(layout=layout) for layout in heads for batch in batches]
    return [batch for batch in dict.fromkeys(batches) if only in str(batch)]
