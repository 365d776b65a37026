"""Random batches for which a server replays captured graphs: smaller than a graph's maxima, and uneven."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product

from attn_kernels import Lengths, Parts
from attn_kernels.measure.batches import Batch, HeadLayout, short

K = 1024
KINDS = ("decode", "short", "mixed")
MOST_CHUNKS = 3  # prompts of which a mixed step computes a chunk


@dataclass(frozen=True)
class ServerBatch:
    """A batch, and the maxima of the smallest graph that can be replayed for it."""

    kind: str  # of KINDS
    maxima: Lengths
    batch: Batch

    @property
    def context_class(self) -> str:
        """Name a limit of the mean context, for a table's rows."""
        mean = self.batch.lengths.num_kv_tokens / self.batch.lengths.num_seqs
        return next((f"<= {short(limit)}" for limit in (512, 2 * K, 8 * K) if mean <= limit), "> 8K")


@dataclass(frozen=True)
class CaptureServer:
    """The graphs that a server captures, and its memory for keys and values."""

    sizes: tuple[int, ...]  # sequences of the graphs for decode steps
    contexts: tuple[int, ...]
    mixed_sizes: tuple[int, ...]  # sequences of the graphs for decodes together with chunks of prompts
    mixed_tokens: tuple[int, ...]
    mixed_context: int
    short_size: int  # sequences of the graphs for short batches, which only decode
    short_context: int  # longest context of a short batch
    layout: HeadLayout
    num_layers: int
    max_tokens: int  # that the caches hold
    shortest: int  # least median of a batch's contexts

    def graphs(self, kind: str) -> list[Lengths]:
        """The maxima of the graphs for a kind; a sequence of a mixed one may have all query tokens."""
        if kind == "mixed":
            longest = self.mixed_context
            sizes = product(self.mixed_sizes, self.mixed_tokens)
            return [Lengths(size, tokens, tokens, longest, size * longest) for size, tokens in sizes]
        sizes = product(self.contexts, self.sizes if kind == "decode" else (self.short_size,))
        return [Lengths(size, size, 1, context, size * context) for context, size in sizes]

    @property
    def largest(self) -> Lengths:
        """Every maximum of all graphs."""
        return Lengths(*map(max, zip(*self.graphs("decode"), *self.graphs("mixed"), strict=True)))


def parts_of(maxima: Lengths) -> Parts:
    """The parts of a mixed graph: any sequence may decode, and up to MOST_CHUNKS compute chunks."""
    num_seqs, longest, chunks = maxima.num_seqs, maxima.max_seq_len, min(MOST_CHUNKS, maxima.num_seqs)
    prompts = maxima._replace(num_seqs=chunks, num_kv_tokens=chunks * longest)
    return Parts(Lengths(num_seqs, num_seqs, 1, longest, num_seqs * longest), prompts)


# 32 layers of Llama-3-8B's heads; half a million tokens are 64 GiB of keys and values in bf16.
H100 = CaptureServer(
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
TINY = CaptureServer((1, 2, 4), (96,), (3,), (8, 12), 96, 4, 24, HeadLayout(4, 2, 16), 2, 300, 1)


def draw(server: CaptureServer, kind: str, count: int, seed: int) -> Iterator[ServerBatch]:
    """Yield `count` batches of one of `KINDS`, equally many for each graph.

    Lengths are log-normal about the batch's median, which is log-uniform. In a fifth of the batches, but in
    no short one, one sequence has the longest context. In a mixed batch up to three sequences compute
    chunks. These share a random number of query tokens for which no smaller graph suffices, and a context
    is at least as long as its chunk.
    """
    rng = random.Random(f"captured/{seed}" if kind == "decode" else f"captured {kind}/{seed}")
    graphs = server.graphs(kind)
    for index in range(count):
        maxima = graphs[index % len(graphs)]
        num_seqs = draw_size(server.mixed_sizes if kind == "mixed" else server.sizes, maxima.num_seqs, rng)
        queries = draw_queries(server, maxima, num_seqs, rng) if kind == "mixed" else (1,) * num_seqs
        contexts, median = draw_contexts(server, maxima, num_seqs, kind, rng)
        sizes = f"{maxima.num_seqs}x{short(maxima.max_seq_len)}"
        sizes += f"+{short(maxima.num_query_tokens)}" if kind == "mixed" else ""
        name = f"{sizes}: {num_seqs} of about {median}, {kind}"
        longest = tuple(max(query, context) for query, context in zip(queries, contexts, strict=True))
        batch = Batch(name, "mixed" if kind == "mixed" else "decode", queries, longest, server.layout)
        yield ServerBatch(kind, maxima, batch)


def draw_size(sizes: tuple[int, ...], largest: int, rng: random.Random) -> int:
    """Draw a number of sequences for which `largest` is the smallest size that suffices."""
    return rng.randint(max((size for size in sizes if size < largest), default=0) + 1, largest)


def draw_queries(
    server: CaptureServer, maxima: Lengths, num_seqs: int, rng: random.Random
) -> tuple[int, ...]:
    """Draw the query lengths of decodes, followed by chunks of prompts."""
    chunks = rng.randint(1, min(MOST_CHUNKS, num_seqs))
    too_few = max((tokens for tokens in server.mixed_tokens if tokens < maxima.num_query_tokens), default=0)
    in_chunks = rng.randint(max(too_few + 1, num_seqs + chunks), maxima.num_query_tokens) - num_seqs + chunks
    cuts = sorted(rng.sample(range(1, in_chunks), chunks - 1))
    return *[1] * (num_seqs - chunks), *(end - start for start, end in pairwise([0, *cuts, in_chunks]))


def draw_contexts(
    server: CaptureServer, maxima: Lengths, num_seqs: int, kind: str, rng: random.Random
) -> tuple[list[int], int]:
    """Draw contexts that fit the caches; return them and the median of their distribution."""
    longest = server.short_context if kind == "short" else maxima.max_seq_len
    middle = rng.uniform(math.log(server.shortest), math.log(longest))
    deviation = rng.choice((0.0, 0.3, 1.0))
    contexts = [max(1, min(longest, round(math.exp(rng.gauss(middle, deviation))))) for _ in range(num_seqs)]
    if kind != "short":
        if rng.random() < 0.2:
            contexts[rng.randrange(num_seqs)] = longest
        excess = max(1.0, sum(contexts) / (0.9 * server.max_tokens))
        contexts = [max(1, int(context / excess)) for context in contexts]
    return contexts, round(math.exp(middle))
