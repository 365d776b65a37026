"""Random decode batches as servers replay graphs for them: sizes up to a captured one, uneven contexts."""

import math
import random
from dataclasses import dataclass

from attn_kernels.measure.batches import Batch, HeadLayout, short

K = 1024


@dataclass(frozen=True)
class Maxima:
    """What one graph is captured for: sequences of one query token, and tokens of the longest context."""

    num_seqs: int
    max_context: int

    def __str__(self) -> str:
        return f"{self.num_seqs}x{short(self.max_context)}"


@dataclass(frozen=True)
class Drawn:
    """A batch, and the graph that a server replays for it: the smallest that holds it."""

    maxima: Maxima
    batch: Batch

    @property
    def context_class(self) -> str:
        mean = self.batch.num_kv_tokens / self.batch.num_seqs
        return next((f"<= {short(limit)}" for limit in (512, 2 * K, 8 * K) if mean <= limit), "> 8K")


@dataclass(frozen=True)
class Server:
    """The sizes that a server captures, the contexts that it allows, and its memory for keys and values."""

    sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    layout: HeadLayout
    num_layers: int
    max_tokens: int
    shortest: int

    @property
    def graphs(self) -> list[Maxima]:
        return [Maxima(size, context) for context in self.contexts for size in self.sizes]


# 32 layers of Llama-3-8B's heads; half a million tokens are 64 GiB of keys and values in bf16.
H100 = Server((1, 2, 4, 8, 16, 32, 64, 128, 256), (8 * K, 32 * K), HeadLayout(32, 8), 32, 512 * K, 64)
SMOKE = Server((1, 2, 4), (96,), HeadLayout(4, 2, 16), 2, 256, 1)


def draw(server: Server, count: int, seed: int) -> list[Drawn]:
    """``count`` batches, as many for one graph as for another.

    Lengths are log-normal about a median of the batch, which is log-uniform; in one batch of five, one
    sequence has the longest context.
    """
    rng = random.Random(f"captured/{seed}")
    return [draw_one(server, server.graphs[index % len(server.graphs)], rng) for index in range(count)]


def draw_one(server: Server, maxima: Maxima, rng: random.Random) -> Drawn:
    smaller = [size for size in server.sizes if size < maxima.num_seqs]
    num_seqs = rng.randint(max(smaller, default=0) + 1, maxima.num_seqs)
    middle = rng.uniform(math.log(server.shortest), math.log(maxima.max_context))
    spread = rng.choice((0.0, 0.3, 1.0))
    contexts = [
        max(1, min(maxima.max_context, round(math.exp(rng.gauss(middle, spread))))) for _ in range(num_seqs)
    ]
    if rng.random() < 0.2:
        contexts[rng.randrange(num_seqs)] = maxima.max_context
    excess = sum(contexts) / (0.9 * server.max_tokens)
    if excess > 1:
        contexts = [max(1, int(context / excess)) for context in contexts]
    name = f"{maxima}: {num_seqs} of about {round(math.exp(middle))}"
    return Drawn(maxima, Batch(name, "decode", (1,) * num_seqs, tuple(contexts), server.layout))
