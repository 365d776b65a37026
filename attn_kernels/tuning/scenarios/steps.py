"""Scenario sets of ``mixed_attention``: serving steps of decodes and prompts."""

import random
from collections.abc import Mapping

from attn_kernels.measure.batches import Batch, HeadLayout
from attn_kernels.tuning.scenarios.scenario import Shape
from attn_kernels.tuning.scenarios.serving import (
    CONTEXTS,
    FP8,
    TOKEN_BUDGETS,
    Draws,
    K,
    Kind,
    Lengths,
    Range,
    draw,
    scenario_from,
    shared,
    uneven,
)

# Weights of the shapes, which are shapes of `serving`.
STEP_SHAPES: Mapping[Shape, int] = {
    Shape(HeadLayout(32, 8, 128)): 4,
    Shape(HeadLayout(8, 1, 128)): 1,
    Shape(HeadLayout(28, 4, 128)): 1,
    Shape(HeadLayout(64, 8, 128)): 1,
    Shape(HeadLayout(32, 8, 64)): 1,
    Shape(HeadLayout(64, 8, 64)): 1,
    Shape(HeadLayout(16, 2, 128)): 1,
    Shape(HeadLayout(32, 32, 128)): 2,
}
# Also of `steps`, but drawn separately, as is the second set of shares.
MORE_STEP_SHAPES: Mapping[Shape, int] = {
    Shape(HeadLayout(16, 8, 256)): 8,
    Shape(HeadLayout(8, 4, 256)): 6,
    Shape(HeadLayout(16, 2, 256)): 8,
    Shape(HeadLayout(16, 1, 192)): 8,
    Shape(HeadLayout(32, 32, 80)): 6,
    Shape(HeadLayout(32, 8, 128), block_size=1): 4,
    Shape(HeadLayout(32, 8, 128), cache_dtype=FP8): 8,
    Shape(HeadLayout(64, 8, 64), cache_dtype=FP8): 6,
}
STEP_SHARES: Mapping[str, float] = {"chunks": 2 / 3, "prompts": 1 / 3}
EVEN_SHARES: Mapping[str, float] = {"chunks_even": 2 / 3, "prompts_even": 1 / 3}  # decodes of one context

DECODES = Range(1, 256)  # the number of sequences, as in the next two
CHUNKS = Range(1, 4)
PROMPTS = Range(2, 16)
DECODE_CONTEXTS = Range(64, 64 * K)
CHUNK_LENS = Range(256, 4 * K)
SHORTEST_PROMPT = 64  # tokens


def _step(u: float, v: float, rng: random.Random, count: int, shortest: int) -> tuple[Lengths, list[int]]:
    """Decodes, and the query tokens of `count` prompts, which share the rest of a token budget."""
    decodes = DECODES.at(u)
    budgets = [budget for budget in TOKEN_BUDGETS if budget - decodes >= count * shortest]
    queries = shared(budgets[int(rng.random() * len(budgets))] - decodes, count, rng, shortest)
    contexts = uneven(DECODE_CONTEXTS.at(v), decodes, rng, DECODE_CONTEXTS.low)
    return [(1, context) for context in contexts], queries


def _chunks(u: float, v: float, rng: random.Random) -> Lengths:
    """Decodes and chunks of prompts, of which half have cached tokens."""
    decodes, queries = _step(u, v, rng, CHUNKS.at(rng.random()), CHUNK_LENS.low)
    queries = [min(query, CHUNK_LENS.high) for query in queries]
    cached = [CONTEXTS.at(rng.random()) if rng.random() < 0.5 else 0 for _ in queries]
    chunks = [(query, min(CONTEXTS.high, query + c)) for query, c in zip(queries, cached, strict=True)]
    return [*decodes, *chunks]


def _prompts(u: float, v: float, rng: random.Random) -> Lengths:
    decodes, queries = _step(u, v, rng, PROMPTS.at(rng.random()), SHORTEST_PROMPT)
    return [*decodes, *((query, query) for query in queries)]


def _even(kind: Kind) -> Kind:
    """Steps of a kind, with decodes that all have the context of the first."""

    def drawn(u: float, v: float, rng: random.Random) -> Lengths:
        lengths = kind(u, v, rng)
        return [(query, lengths[0][1] if query == 1 else context) for query, context in lengths]

    return drawn


_KINDS: Mapping[str, Kind] = {
    "chunks": _chunks,
    "prompts": _prompts,
    "chunks_even": _even(_chunks),
    "prompts_even": _even(_prompts),
}


def tiny_steps(seed: int) -> tuple[Batch, ...]:
    grouped, multi_head = Shape(HeadLayout(4, 2, 32)), Shape(HeadLayout(2, 2, 32))
    return (
        scenario_from(f"tiny-chunks-{grouped}", [(1, 30), (1, 9), (12, 40)], grouped),
        scenario_from(f"tiny-prompts-{grouped}", [(1, 24), (10, 10), (9, 9)], grouped),
        scenario_from(f"tiny-prompts-{multi_head}", [(1, 7), (1, 33), (12, 12)], multi_head),
    )


# By name, from a seed (docs/scenarios.md).
STEP_SETS: dict[str, Draws] = {
    "steps": lambda seed: (
        *draw("steps", seed, 240, STEP_SHAPES, STEP_SHARES, _KINDS),
        *draw("more_steps", seed, sum(MORE_STEP_SHAPES.values()), MORE_STEP_SHAPES, STEP_SHARES, _KINDS),
        *draw("even_steps", seed, 36, STEP_SHAPES, EVEN_SHARES, _KINDS),
    ),
    "tiny": tiny_steps,
    "untuned_steps": lambda seed: draw("untuned_steps", seed, 48, STEP_SHAPES, STEP_SHARES, _KINDS),
}
