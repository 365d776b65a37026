"""Random batches as servers replay graphs for them: smaller than what a graph is captured for, uneven."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from attn_kernels.measure.batches import Batch, HeadLayout, short

K = 1024
MOST_CHUNKS = 3  # prompts that a mixed step takes in at once


@dataclass(frozen=True)
class Maxima:
    """What one graph is captured for: sequences, tokens of the longest context, query tokens of all
    sequences, which one may have alone if ``mixed``; else each has one."""

    num_seqs: int
    max_seq_len: int
    num_query_tokens: int
    mixed: bool = False

    @property
    def max_query_len(self) -> int:
        return self.num_query_tokens if self.mixed else 1

    def holds(self, batch: Batch) -> bool:
        return (
            batch.num_seqs <= self.num_seqs
            and batch.num_query_tokens <= self.num_query_tokens
            and batch.max_query_len <= self.max_query_len
            and batch.max_seq_len <= self.max_seq_len
        )

    def largest(self, layout: HeadLayout) -> Batch:
        """A batch of all these sequences and tokens, and of the longest contexts."""
        decodes = self.num_seqs - self.mixed
        queries = (1,) * decodes + (self.num_query_tokens - decodes,) * self.mixed
        return Batch(str(self), "", queries, (self.max_seq_len,) * self.num_seqs, layout)

    def __str__(self) -> str:
        tokens = f"+{short(self.num_query_tokens)}" if self.mixed else ""
        return f"{self.num_seqs}x{short(self.max_seq_len)}{tokens}"


@dataclass(frozen=True)
class Drawn:
    """A batch, and the graph that a server replays for it: the smallest that holds it.

    ``kind``: which of ``KINDS`` it was drawn as.
    """

    kind: str
    maxima: Maxima
    batch: Batch

    @property
    def row(self) -> str:
        """Of the tables: batches of like graphs."""
        sizes = str(self.maxima.num_seqs)
        if self.maxima.mixed:
            return f"{sizes} +{short(self.maxima.num_query_tokens)}"
        return f"{sizes} short" if self.kind == "short" else sizes

    @property
    def context_class(self) -> str:
        mean = self.batch.num_kv_tokens / self.batch.num_seqs
        return next((f"<= {short(limit)}" for limit in (512, 2 * K, 8 * K) if mean <= limit), "> 8K")


@dataclass(frozen=True)
class Server:
    """What a server captures and allows, and its memory for keys and values.

    Attributes:
        sizes, contexts: of graphs for decode steps. mixed_sizes, mixed_tokens, mixed_context: of graphs for
            decodes beside chunks of prompts.
        short_size, short_context: decode steps of about this many sequences, all of them so short.
        max_tokens: of the caches. shortest: the least median of a batch's contexts.
    """

    sizes: tuple[int, ...]
    contexts: tuple[int, ...]
    mixed_sizes: tuple[int, ...]
    mixed_tokens: tuple[int, ...]
    mixed_context: int
    short_size: int
    short_context: int
    layout: HeadLayout
    num_layers: int
    max_tokens: int
    shortest: int

    @property
    def decode_graphs(self) -> list[Maxima]:
        return [Maxima(size, context, size) for context in self.contexts for size in self.sizes]

    @property
    def mixed_graphs(self) -> list[Maxima]:
        return [
            Maxima(size, self.mixed_context, tokens, mixed=True)
            for size in self.mixed_sizes
            for tokens in self.mixed_tokens
        ]

    @property
    def most_seqs(self) -> int:
        return max(*self.sizes, *self.mixed_sizes)

    @property
    def most_query_tokens(self) -> int:
        return max(*self.sizes, *self.mixed_tokens)

    @property
    def longest(self) -> int:
        return max(*self.contexts, self.mixed_context)


# 32 layers of Llama-3-8B's heads; half a million tokens are 64 GiB of keys and values in bf16.
H100 = Server(
    sizes=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    contexts=(8 * K, 32 * K),
    mixed_sizes=(8, 16, 32),
    mixed_tokens=(512, 2 * K),
    mixed_context=8 * K,
    short_size=16,
    short_context=512,
    layout=HeadLayout(32, 8),
    num_layers=32,
    max_tokens=512 * K,
    shortest=64,
)
SMOKE = Server((1, 2, 4), (96,), (3,), (8, 12), 96, 4, 24, HeadLayout(4, 2, 16), 2, 300, 1)


def draw(server: Server, kind: str, count: int, seed: int) -> Iterator[Drawn]:
    """``count`` batches of one of ``KINDS``, as many for one graph as for another.

    Lengths are log-normal about a median of the batch, which is log-uniform; but for short batches, in one of
    five one sequence has the longest context. Mixed batches: up to three sequences take chunks, which share
    any number of query tokens that needs this graph; a context ends with its chunk.
    """
    rng = random.Random(f"captured/{seed}" if kind == "decode" else f"captured {kind}/{seed}")
    for index in range(count):
        yield KINDS[kind](server, index, rng)


def draw_decode(server: Server, index: int, rng: random.Random) -> Drawn:
    maxima = server.decode_graphs[index % len(server.decode_graphs)]
    num_seqs = draw_size(server.sizes, maxima.num_seqs, rng)
    contexts, middle = draw_contexts(server, num_seqs, maxima.max_seq_len, rng)
    if rng.random() < 0.2:
        contexts[rng.randrange(num_seqs)] = maxima.max_seq_len
    contexts = fit(contexts, server)
    name = f"{maxima}: {num_seqs} of about {middle}"
    return Drawn("decode", maxima, Batch(name, "decode", (1,) * num_seqs, tuple(contexts), server.layout))


def draw_short(server: Server, index: int, rng: random.Random) -> Drawn:
    graphs = [maxima for maxima in server.decode_graphs if maxima.num_seqs == server.short_size]
    maxima = graphs[index % len(graphs)]
    num_seqs = draw_size(server.sizes, maxima.num_seqs, rng)
    contexts, middle = draw_contexts(server, num_seqs, server.short_context, rng)
    name = f"{maxima}: {num_seqs} of about {middle}, short"
    return Drawn("short", maxima, Batch(name, "decode", (1,) * num_seqs, tuple(contexts), server.layout))


def draw_mixed(server: Server, index: int, rng: random.Random) -> Drawn:
    maxima = server.mixed_graphs[index % len(server.mixed_graphs)]
    num_seqs = draw_size(server.mixed_sizes, maxima.num_seqs, rng)
    chunks = rng.randint(1, min(MOST_CHUNKS, num_seqs))
    too_few = max((tokens for tokens in server.mixed_tokens if tokens < maxima.num_query_tokens), default=0)
    in_chunks = rng.randint(max(too_few + 1, num_seqs + chunks), maxima.num_query_tokens) - num_seqs + chunks
    cuts = sorted(rng.sample(range(1, in_chunks), chunks - 1))
    ends = [*cuts, in_chunks]
    queries = [1] * (num_seqs - chunks)
    queries += [end - start for start, end in zip([0, *cuts], ends, strict=True)]
    cached, middle = draw_contexts(server, num_seqs, maxima.max_seq_len, rng)
    if rng.random() < 0.2:
        cached[rng.randrange(num_seqs)] = maxima.max_seq_len
    cached = fit(cached, server)
    contexts = [max(query, context) for query, context in zip(queries, cached, strict=True)]
    name = f"{maxima}: {num_seqs} of about {middle}, {chunks} with {in_chunks}"
    return Drawn("mixed", maxima, Batch(name, "mixed", tuple(queries), tuple(contexts), server.layout))


KINDS = {"decode": draw_decode, "short": draw_short, "mixed": draw_mixed}


def draw_size(sizes: tuple[int, ...], largest: int, rng: random.Random) -> int:
    """Any number of sequences for which ``largest`` is the smallest size."""
    return rng.randint(max((size for size in sizes if size < largest), default=0) + 1, largest)


def draw_contexts(server: Server, num_seqs: int, longest: int, rng: random.Random) -> tuple[list[int], int]:
    """Contexts of so many sequences, and their median."""
    middle = rng.uniform(math.log(server.shortest), math.log(longest))
    spread = rng.choice((0.0, 0.3, 1.0))
    lengths = [max(1, min(longest, round(math.exp(rng.gauss(middle, spread))))) for _ in range(num_seqs)]
    return lengths, round(math.exp(middle))


def fit(contexts: list[int], server: Server) -> list[int]:
    """The same, shortened if the caches would not hold them."""
    excess = sum(contexts) / (0.9 * server.max_tokens)
    return [max(1, int(context / excess)) for context in contexts] if excess > 1 else contexts
