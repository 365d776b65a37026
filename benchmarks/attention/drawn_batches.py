"""Batches of uneven lengths: serving steps of decodes beside prompts, and prompts alone.

Lengths "up to C" are log-uniform from C / 8 to C, drawn by a generator that the batch's name seeds.
"""

import math
import random
from collections.abc import Sequence
from itertools import starmap

from attn_kernels.measure.batches import LLAMA_3_8B, Batch, HeadLayout, decode, prefill, short

K = 1024
SPREAD = 8  # the longest length a batch allows over the shortest


def up_to(longest: int, count: int, rng: random.Random) -> tuple[int, ...]:
    """Draw `count` log-uniform lengths from an eighth of `longest` to `longest`."""
    return tuple(max(1, round(longest * math.exp(-rng.random() * math.log(SPREAD)))) for _ in range(count))


def step(decodes: int, longest: int, chunk: int, context: int, layout: HeadLayout = LLAMA_3_8B) -> Batch:
    """Return decodes with contexts up to `longest`, then one chunk of a prompt that ends `context` tokens."""
    name = f"step {decodes}x{short(longest)}+{short(chunk)}@{short(context)}"
    contexts = up_to(longest, decodes, random.Random(f"{name}/{layout}"))
    return Batch(name, "mixed", (1,) * decodes + (chunk,), (*contexts, context), layout)


def step_of_prompts(decodes: int, prompts: int, longest: int, layout: HeadLayout = LLAMA_3_8B) -> Batch:
    """Return decodes with contexts up to `longest`, then whole prompts of as many tokens."""
    name = f"step {decodes}x{short(longest)}+{prompts}x{short(longest)}"
    rng = random.Random(f"{name}/{layout}")
    contexts, lengths = up_to(longest, decodes, rng), up_to(longest, prompts, rng)
    return Batch(name, "mixed", (1,) * decodes + lengths, contexts + lengths, layout)


def prompts_up_to(count: int, longest: int) -> Batch:
    """Return whole prompts of uneven length."""
    name = f"prompts {count} to {short(longest)}"
    lengths = up_to(longest, count, random.Random(name))
    return Batch(name, "prefill", lengths, lengths)


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
    """Return 29 serving steps, chosen before any was measured: seven of Llama-3-8B's, then `GRID`."""
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


def uneven() -> list[Batch]:
    """Return whole prompts of uneven length, and even ones to compare with."""
    drawn = starmap(prompts_up_to, ((16, 2 * K), (8, 4 * K), (4, 8 * K), (32, K)))
    even = starmap(prefill, ((8, 2 * K), (4, 2 * K), (1, 8 * K), (2, 4 * K)))
    return [*drawn, *even]


def rivals() -> list[Batch]:
    """Return five decode batches of even contexts, from few sequences to many."""
    return list(starmap(decode, ((1, 8 * K), (8, 8 * K), (64, 2 * K), (64, 8 * K), (256, K))))


def tiny_steps() -> list[Batch]:
    """Return steps of a few tokens, for Triton's interpreter."""
    small = HeadLayout(4, 2, 32)
    return [step(3, 40, 12, 30, small), step_of_prompts(2, 2, 24, small)]
