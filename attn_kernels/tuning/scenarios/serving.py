"""Named scenario sets, drawn from a declared distribution of the batches that serving engines launch.

Every shape and kind gets a fixed number of a set's scenarios. Within a shape and kind, the two main sizes
come from a sequence that covers their plane evenly, and the rest is random. A batch that breaks a bound is
drawn again.
"""

import itertools
import math
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from attn_kernels.core.lengths import MAX_DRAFT
from attn_kernels.measure.batches import Batch, HeadLayout, ScoreOptions
from attn_kernels.measure.roofline import work
from attn_kernels.tuning.scenarios.scenario import Shape, kind_of, scenario_of

K = 1024
FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Range:
    """Log-uniform integers from `low` to `high`, both possible."""

    low: int
    high: int

    def at(self, u: float) -> int:
        """The quantile `u` of the distribution."""
        return min(self.high, round(self.low * math.exp(u * math.log(self.high / self.low))))


# The shapes of `serving`, with the number of their scenarios: heads of models on one GPU.
SHAPES: dict[Shape, int] = {
    Shape(HeadLayout(32, 8, 128)): 150,  # Llama-3-8B
    Shape(HeadLayout(8, 1, 128)): 70,  # Llama-3-70B on eight GPUs
    Shape(HeadLayout(16, 2, 128)): 50,  # on four
    Shape(HeadLayout(64, 8, 128)): 70,  # on one
    Shape(HeadLayout(28, 4, 128)): 60,  # Qwen2.5-7B
    Shape(HeadLayout(32, 4, 128)): 40,  # Qwen3-30B-A3B
    Shape(HeadLayout(64, 4, 128)): 40,  # Qwen3-235B-A22B
    Shape(HeadLayout(32, 32, 128)): 50,  # Llama-2-7B: multi-head
    Shape(HeadLayout(32, 8, 64)): 60,  # Llama-3.2-1B
    Shape(HeadLayout(64, 8, 64)): 60,  # gpt-oss
    Shape(HeadLayout(16, 8, 256)): 50,  # Gemma-2-9B
    Shape(HeadLayout(8, 4, 256)): 40,  # Gemma-2-2B
    Shape(HeadLayout(16, 2, 256)): 50,  # Qwen3-Next-80B-A3B
    Shape(HeadLayout(48, 1, 128)): 20,  # StarCoder: multi-query
    Shape(HeadLayout(71, 1, 64)): 20,  # Falcon-7B: multi-query
    Shape(HeadLayout(16, 1, 192)): 40,
    Shape(HeadLayout(32, 32, 80)): 24,  # StableLM-3B
    Shape(HeadLayout(32, 32, 96)): 24,  # Phi-3-mini
    Shape(HeadLayout(28, 4, 112)): 20,
    Shape(HeadLayout(16, 4, 160)): 16,
    Shape(HeadLayout(32, 8, 128), block_size=1): 40,  # SGLang's default page
    Shape(HeadLayout(8, 1, 128), block_size=1): 24,
    Shape(HeadLayout(64, 8, 64), block_size=1): 20,
    Shape(HeadLayout(32, 8, 128), block_size=128): 40,
    Shape(HeadLayout(32, 8, 128), block_size=64, dtype=torch.float16): 30,
    Shape(HeadLayout(32, 8, 128), cache_dtype=FP8): 60,
    Shape(HeadLayout(64, 8, 128), cache_dtype=FP8): 40,
    Shape(HeadLayout(8, 1, 128), cache_dtype=FP8): 30,
    Shape(HeadLayout(64, 8, 64), cache_dtype=FP8): 30,
    Shape(HeadLayout(16, 8, 256), cache_dtype=FP8): 24,
    Shape(HeadLayout(16, 1, 192), cache_dtype=FP8): 20,
    Shape(HeadLayout(32, 32, 96), cache_dtype=FP8): 16,
    Shape(HeadLayout(64, 8, 64), scores=ScoreOptions(window=128, sinks=True)): 30,  # gpt-oss
    Shape(HeadLayout(32, 8, 128), scores=ScoreOptions(window=4 * K)): 20,  # Mistral
    Shape(HeadLayout(16, 8, 256), scores=ScoreOptions(window=4 * K, softcap=50.0)): 20,  # Gemma-2-9B
}
# Also of `serving`, but drawn separately, so that the scenarios of the shapes above stay as tables have them.
WIDE_SHAPES: dict[Shape, int] = {
    Shape(HeadLayout(16, 2, 512)): 24,  # global layers of Gemma-4-26B-A4B
    Shape(HeadLayout(32, 4, 512), cache_dtype=FP8): 16,  # of Gemma-4-31B
    Shape(HeadLayout(16, 4, 320)): 12,
}
# The shapes of `other_models`. No table that a module is compiled from holds them: they judge.
OTHER_SHAPES: dict[Shape, int] = {
    Shape(HeadLayout(40, 8, 128)): 14,  # Qwen3-14B
    Shape(HeadLayout(24, 8, 128)): 10,  # Llama-3.2-3B
    Shape(HeadLayout(32, 16, 128)): 10,  # Gemma-3-27B
    Shape(HeadLayout(36, 4, 128)): 8,  # StarCoder2-7B
    Shape(HeadLayout(128, 8, 128)): 8,  # Llama-3.1-405B
    Shape(HeadLayout(40, 40, 128)): 8,  # Llama-2-13B
    Shape(HeadLayout(14, 2, 64)): 8,  # Qwen2.5-0.5B
    Shape(HeadLayout(4, 1, 256)): 8,  # Gemma-3-1B
    Shape(HeadLayout(8, 2, 256)): 8,  # Gemma-3n-E4B
    Shape(HeadLayout(40, 8, 128), cache_dtype=FP8): 8,
    Shape(HeadLayout(28, 4, 128), block_size=1): 6,
}
OTHER_WIDE_SHAPES = {Shape(HeadLayout(8, 2, 512)): 8}  # global layers of Gemma-4-E4B; also by themselves
# Batches that are rare above, in which configs differ most: drafts behind contexts of one length, and mixed
# batches whose parts the host does not know.
DRAFT_SHAPES: dict[Shape, int] = {
    Shape(HeadLayout(32, 8, 128)): 12,
    Shape(HeadLayout(8, 1, 128)): 6,
    Shape(HeadLayout(16, 2, 128)): 6,
    Shape(HeadLayout(64, 8, 128)): 8,
    Shape(HeadLayout(28, 4, 128)): 8,
    Shape(HeadLayout(32, 4, 128)): 8,
    Shape(HeadLayout(64, 4, 128)): 10,
    Shape(HeadLayout(48, 1, 128)): 2,
    Shape(HeadLayout(32, 32, 128)): 2,
    Shape(HeadLayout(32, 8, 64)): 4,
    Shape(HeadLayout(64, 8, 64)): 6,
    Shape(HeadLayout(16, 8, 256)): 4,
    Shape(HeadLayout(16, 2, 256)): 6,
    Shape(HeadLayout(16, 1, 192)): 4,
    Shape(HeadLayout(32, 8, 128), block_size=1): 4,
    Shape(HeadLayout(32, 8, 128), cache_dtype=FP8): 6,
    Shape(HeadLayout(64, 8, 128), cache_dtype=FP8): 6,
    Shape(HeadLayout(64, 8, 64), cache_dtype=FP8): 4,
    Shape(HeadLayout(16, 8, 256), cache_dtype=FP8): 2,
}
MIXED_SHAPES: dict[Shape, int] = {
    Shape(HeadLayout(32, 8, 128)): 6,
    Shape(HeadLayout(28, 4, 128)): 4,
    Shape(HeadLayout(32, 32, 128)): 6,
    Shape(HeadLayout(32, 8, 64)): 4,
    Shape(HeadLayout(64, 8, 64)): 4,
    Shape(HeadLayout(32, 32, 80)): 4,
    Shape(HeadLayout(16, 1, 192)): 6,
    Shape(HeadLayout(16, 8, 256)): 6,
    Shape(HeadLayout(8, 4, 256)): 6,
    Shape(HeadLayout(16, 2, 256)): 6,
    Shape(HeadLayout(32, 8, 128), cache_dtype=FP8): 6,
}
OTHER_DRAFT_SHAPES: dict[Shape, int] = {
    Shape(HeadLayout(32, 2, 128)): 8,  # GLM-4-9B
    Shape(HeadLayout(40, 8, 128)): 6,
    Shape(HeadLayout(24, 8, 128)): 3,
    Shape(HeadLayout(36, 4, 128)): 4,
    Shape(HeadLayout(14, 2, 64)): 3,
    Shape(HeadLayout(8, 2, 256)): 4,
    Shape(HeadLayout(40, 8, 128), cache_dtype=FP8): 4,
}
OTHER_MIXED_SHAPES: dict[Shape, int] = {
    Shape(HeadLayout(40, 8, 128)): 4,
    Shape(HeadLayout(40, 40, 128)): 4,
    Shape(HeadLayout(14, 2, 64)): 4,
    Shape(HeadLayout(4, 1, 256)): 5,
    Shape(HeadLayout(8, 2, 256)): 5,
}
# Servers that know the parts of a mixed batch have a choice for each part. The others have one for the whole.
SHARES = {
    "decode": 0.28,
    "decode_even": 0.14,
    "mixed": 0.05,
    "decode_part": 0.075,
    "prompt_part": 0.075,
    "prefill": 0.14,
    "chunk": 0.12,
    "spec": 0.12,
}
DRAFTS, MIXED = {"spec_even": 1.0}, {"mixed": 1.0}

CONTEXTS = Range(64, 128 * K)
EVEN_CONTEXTS = Range(64, 64 * K)  # of drafts that all have one
SPREADS = (2, 8, 64)  # the longest sequence of a batch over its shortest, at most
DECODES = Range(1, 256)  # the number of sequences, as in the next four
SPECULATING = Range(1, 128)
PROMPTS = Range(1, 16)
CHUNKS = Range(1, 8)
BESIDE_DECODES = Range(1, 16)
PROMPT_LENS = Range(64, 16 * K)
CHUNK_LENS = Range(256, 4 * K)
DECODE_SHARE = (0.5, 0.98)  # the share of decodes among a mixed batch's sequences
# Query tokens of a mixed batch, of which half of the batches use all.
TOKEN_BUDGETS = (512, 1 * K, 2 * K, 4 * K, 8 * K)
SHORTEST_BESIDE = 16  # tokens

MAX_KV_BYTES = 4 << 30
MAX_FLOPS = 4 * 10**12
MAX_QUERY_TOKENS = 16 * K
HELD_OUT_SHARE = 8  # one of eight possible batches is reserved for `untuned` and `untuned_steps`

Lengths = list[tuple[int, int]]  # query and context of each sequence
# Draws a batch from two main sizes, each from 0 to 1, and a source of all else.
Kind = Callable[[float, float, random.Random], Lengths]
Draws = Callable[[int], tuple[Batch, ...]]  # a scenario set, from a seed


def uneven(longest: int, count: int, rng: random.Random, shortest: int = CONTEXTS.low) -> list[int]:
    """`count` log-uniform lengths, one of them `longest`, none below `shortest`."""
    spread = SPREADS[int(rng.random() * len(SPREADS))]
    lengths = Range(max(shortest, longest // spread), longest)
    drawn = [lengths.at(rng.random()) for _ in range(count - 1)]
    drawn.insert(int(rng.random() * count), longest)
    return drawn


def shared(tokens: int, count: int, rng: random.Random, shortest: int) -> list[int]:
    """Divide up to `tokens` query tokens, half the time all, among prompts of at least `shortest` each."""
    room = tokens - count * shortest
    used = room if rng.random() < 0.5 else int(room * rng.random())
    cuts = sorted(int(used * rng.random()) for _ in range(count - 1))
    return [shortest + end - start for start, end in itertools.pairwise([0, *cuts, used])]


def _decode(u: float, v: float, rng: random.Random) -> Lengths:
    count = Range(2, DECODES.high).at(u)  # a batch of one sequence is not uneven
    return [(1, context) for context in uneven(CONTEXTS.at(v), count, rng)]


def _decode_even(u: float, v: float, rng: random.Random) -> Lengths:
    """Half of the batches have a power of 2 of sequences, as load tests and sampled answers have."""
    count = DECODES.at(u)
    return [(1, CONTEXTS.at(v))] * (1 << round(math.log2(count)) if rng.random() < 0.5 else count)


def _prefill(u: float, v: float, rng: random.Random) -> Lengths:
    return [(length, length) for length in uneven(PROMPT_LENS.at(v), PROMPTS.at(u), rng)]


def _chunk(u: float, v: float, rng: random.Random) -> Lengths:
    count = CHUNKS.at(u)
    queries = uneven(CHUNK_LENS.at(v), count, rng, CHUNK_LENS.low)
    longest = Range(CHUNK_LENS.low, CONTEXTS.high - max(queries)).at(rng.random())
    return [(q, q + c) for q, c in zip(queries, uneven(longest, count, rng, CHUNK_LENS.low), strict=True)]


def _spec(u: float, v: float, rng: random.Random) -> Lengths:
    """Speculative decoding: in half of the batches all sequences verify equally many tokens."""
    contexts = uneven(CONTEXTS.at(v), SPECULATING.at(u), rng)
    same = rng.random() < 0.5
    queries = [_draft(rng) for _ in contexts]
    return [
        (queries[0] if same else query, context) for query, context in zip(queries, contexts, strict=True)
    ]


def _spec_even(u: float, v: float, rng: random.Random) -> Lengths:
    return [(_draft(rng), EVEN_CONTEXTS.at(v))] * SPECULATING.at(u)


def _draft(rng: random.Random) -> int:
    """The tokens that a sequence verifies."""
    return 2 + int(rng.random() * (MAX_DRAFT - 1))


def _mixed(u: float, v: float, rng: random.Random) -> Lengths:
    """Decodes, which engines put first, and prompts or chunks that share the rest of a token budget."""
    prompts = BESIDE_DECODES.at(u)
    low, high = DECODE_SHARE
    share = low + rng.random() * (high - low)
    decodes = max(prompts, min(DECODES.high - prompts, int(prompts * share / (1 - share))))
    budget = TOKEN_BUDGETS[int(rng.random() * len(TOKEN_BUDGETS))]
    queries = shared(budget - decodes, prompts, rng, SHORTEST_BESIDE)
    cached = [CONTEXTS.at(rng.random()) if rng.random() < 0.5 else 0 for _ in queries]
    beside = [(query, min(CONTEXTS.high, query + c)) for query, c in zip(queries, cached, strict=True)]
    return [*((1, context) for context in uneven(CONTEXTS.at(v), decodes, rng)), *beside]


def _decode_part(u: float, v: float, rng: random.Random) -> Lengths:
    return [(query, context) for query, context in _mixed(u, v, rng) if query == 1]


def _prompt_part(u: float, v: float, rng: random.Random) -> Lengths:
    return [(query, context) for query, context in _mixed(u, v, rng) if query > 1]


_KINDS: dict[str, Kind] = {
    "decode": _decode,
    "decode_even": _decode_even,
    "mixed": _mixed,
    "decode_part": _decode_part,
    "prompt_part": _prompt_part,
    "prefill": _prefill,
    "chunk": _chunk,
    "spec": _spec,
    "spec_even": _spec_even,
}


def affordable(batch: Batch) -> bool:
    """Return whether a GPU of 80 GB can time a few hundred configs in the batch within minutes."""
    small = batch.lengths.num_query_tokens <= MAX_QUERY_TOKENS and batch.kv_bytes <= MAX_KV_BYTES
    return small and work(batch).flops <= MAX_FLOPS


def is_held_out(batch: Batch) -> bool:
    """Return whether batches of these lengths are reserved for sets that judge, at every seed."""
    return zlib.crc32(repr((batch.query_lens, batch.context_lens)).encode()) % HELD_OUT_SHARE == 0


def apportioned(
    count: int, weights: Mapping[Shape, int], shares: Mapping[str, float]
) -> Counter[tuple[Shape, str]]:
    """Divide `count` scenarios among shapes and kinds; each in turn goes where most is missing."""
    total = sum(weights.values())
    shapes: Counter[Shape] = Counter()
    kinds: Counter[str] = Counter()
    cells: Counter[tuple[Shape, str]] = Counter()
    for given in range(1, count + 1):
        shape = max(weights, key=lambda shape: given * weights[shape] / total - shapes[shape])
        shapes[shape] += 1
        kind = max(
            shares, key=lambda kind: shares[kind] * (shapes[shape] + given) - cells[shape, kind] - kinds[kind]
        )
        kinds[kind] += 1
        cells[shape, kind] += 1
    return cells


def _points(rng: random.Random) -> Iterator[tuple[float, float]]:
    """Points that cover the unit square evenly, from a random start: the R2 sequence."""
    u, v = rng.random(), rng.random()
    while True:
        yield u, v
        u, v = (u + 0.7548776662466927) % 1, (v + 0.5698402909980532) % 1


def scenario_from(id: str, lengths: Sequence[tuple[int, int]], shape: Shape) -> Batch:
    return scenario_of(id, [query for query, _ in lengths], [context for _, context in lengths], shape)


def draw(
    name: str,
    seed: int,
    count: int,
    weights: Mapping[Shape, int],
    shares: Mapping[str, float] = SHARES,
    kinds: Mapping[str, Kind] = _KINDS,
) -> tuple[Batch, ...]:
    """Draw a set of `count` scenarios, with a fixed number for each shape and kind.

    A set whose name begins with `untuned` consists of batches that are reserved for judging. The longest
    context exceeds the window, if there is one.
    """
    scenarios: list[Batch] = []
    for (shape, kind), number in apportioned(count, weights, shares).items():
        rng = random.Random(f"{name}/{seed}/{shape}/{kind}")
        seen: set[tuple[tuple[int, int], ...]] = set()
        for u, v in _points(rng):
            lengths = tuple(kinds[kind](u, v, rng))
            in_id = f"{kind_of(*zip(*lengths, strict=True))}-part" if kind.endswith("_part") else kind
            scenario = scenario_from(f"{name}{seed}-{in_id}-{len(seen):02}-{shape}", lengths, shape)
            belongs = is_held_out(scenario) == name.startswith("untuned")
            belongs = belongs and scenario.lengths.max_seq_len > (shape.scores.window or 0)
            if belongs and lengths not in seen and affordable(scenario):
                seen.add(lengths)
                scenarios.append(scenario)
            if len(seen) == number:
                break
    return tuple(scenarios)


def drawn_from(*groups: tuple[str, Mapping[Shape, int], Mapping[str, float]]) -> Draws:
    """A function that draws each shape's number of scenarios from a seed.

    Each group is drawn separately: its scenarios' name, the shapes, and the shares of the kinds.
    """

    def drawn(seed: int) -> tuple[Batch, ...]:
        sets = (draw(name, seed, sum(shapes.values()), shapes, shares) for name, shapes, shares in groups)
        return tuple(itertools.chain.from_iterable(sets))

    return drawn


def tiny(seed: int) -> tuple[Batch, ...]:
    lengths: dict[str, Lengths] = {
        "decode": [(1, 40), (1, 7), (1, 33)],
        "decode_even": [(1, 24)] * 2,
        "mixed": [(1, 30), (1, 9), (12, 12)],
        "prefill": [(20, 20), (9, 9)],
        "chunk": [(12, 40)],
        "spec": [(3, 33), (2, 17)],
    }
    grouped, multi_head = Shape(HeadLayout(4, 2, 32)), Shape(HeadLayout(2, 2, 32))
    cells = [*((kind, grouped) for kind in lengths), ("decode", multi_head), ("mixed", multi_head)]
    return tuple(scenario_from(f"tiny-{kind}-{shape}", lengths[kind], shape) for kind, shape in cells)


QUICK_SHAPES = {Shape(HeadLayout(32, 8, 128)): 16, Shape(HeadLayout(28, 4, 128)): 8}
# By name, from a seed (docs/scenarios.md).
SETS: dict[str, Draws] = {
    "serving": drawn_from(
        ("serving", SHAPES, SHARES),
        ("serving", WIDE_SHAPES, SHARES),
        ("drafts", DRAFT_SHAPES, DRAFTS),
        ("in_one_call", MIXED_SHAPES, MIXED),
    ),
    "quick": drawn_from(("quick", QUICK_SHAPES, SHARES)),
    "tiny": tiny,
    "untuned": lambda seed: draw("untuned", seed, 48, SHAPES),
    "other_models": drawn_from(
        ("other_models", OTHER_SHAPES, SHARES),
        ("other_models", OTHER_WIDE_SHAPES, SHARES),
        ("other_drafts", OTHER_DRAFT_SHAPES, DRAFTS),
        ("other_in_one_call", OTHER_MIXED_SHAPES, MIXED),
    ),
}
