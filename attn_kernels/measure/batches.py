"""Batches as serving engines form them: the lengths of each sequence, and the attention layout."""

import dataclasses
import math
import random
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from attn_kernels.choose.mixed import mixed_features
from attn_kernels.core.lengths import Lengths, Parts
from attn_kernels.core.model import Model


@dataclass(frozen=True)
class HeadLayout:
    num_query_heads: int
    num_kv_heads: int
    head_size: int = 128  # elements

    @classmethod
    def parse(cls, text: str) -> "HeadLayout":
        """Read `32/8` (head size 128) or `32/8/64`; raises ValueError on anything else."""
        match = re.fullmatch(r"(\d+)/(\d+)(?:/(\d+))?", text)
        sizes = [int(size) for size in match.groups() if size] if match else [0]
        if min(sizes) < 1 or sizes[0] % sizes[1]:
            raise ValueError(f"head layout {text!r}: expected a multiple of KV heads, as in 32/8 or 32/8/128")
        return cls(*sizes)

    def model(
        self,
        block_size: int,
        dtype: torch.dtype,
        cache_dtype: torch.dtype | None = None,
        sliding_window: int | None = None,
    ) -> Model:
        """The constants of layers with these heads, as `attn_kernels.plan` takes them."""
        heads = (self.num_query_heads, self.num_kv_heads, self.head_size)
        return Model(*heads, block_size, dtype, cache_dtype, sliding_window)

    def __str__(self) -> str:
        return f"{self.num_query_heads}/{self.num_kv_heads}/{self.head_size}"


LLAMA_3_8B = HeadLayout(32, 8, 128)


@dataclass(frozen=True)
class ScoreOptions:
    window: int | None = None  # keys that a query sees
    softcap: float = 0.0
    sinks: bool = False
    causal: bool = True  # no window otherwise, because checks take some queries of a sequence alone

    def __str__(self) -> str:
        window = f"window {self.window}" if self.window else ""
        softcap = f"soft cap {self.softcap:g}" if self.softcap else ""
        return "+".join(
            filter(None, (window, softcap, "sinks" * self.sinks, "non-causal" * (not self.causal)))
        )


@dataclass(frozen=True)
class Batch:
    """One batch. Query i of a sequence sees keys 0 .. context_len - query_len + i."""

    name: str
    kind: str
    query_lens: tuple[int, ...]  # query tokens of each sequence
    context_lens: tuple[int, ...]  # tokens of each sequence with its query tokens; the kernels' `seqused_k`
    layout: HeadLayout = LLAMA_3_8B
    block_size: int = 16  # tokens per page
    dtype: torch.dtype = torch.bfloat16
    cache_dtype: torch.dtype | None = None  # of the KV caches; None: `dtype`
    scores: ScoreOptions = ScoreOptions()

    def __post_init__(self) -> None:
        if not self.query_lens or len(self.query_lens) != len(self.context_lens):
            raise ValueError(f"{self.name}: query_lens and context_lens need one length for each sequence")
        lens = zip(self.query_lens, self.context_lens, strict=True)
        if any(query < 0 or (query > context and self.scores.causal) for query, context in lens):
            raise ValueError(f"{self.name}: a query length must be at least 0 and at most its context length")
        if not any(self.query_lens):
            raise ValueError(f"{self.name}: at least one query token is needed")

    def at(
        self,
        layout: HeadLayout | None = None,
        block_size: int | None = None,
        dtype: torch.dtype | None = None,
        **changes: Any,
    ) -> "Batch":
        """The same sequences with other heads, pages, types or score options; what is None stays."""
        changes |= {"layout": layout, "block_size": block_size, "dtype": dtype}
        return dataclasses.replace(self, **{name: new for name, new in changes.items() if new is not None})

    @property
    def blocks_per_seq(self) -> tuple[int, ...]:
        return tuple(-(-context // self.block_size) for context in self.context_lens)

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V that one launch must read."""
        tokens = self.lengths.num_kv_tokens
        if self.scores.window is not None:
            before = self.scores.window - 1
            lens = zip(self.query_lens, self.context_lens, strict=True)
            tokens = sum(min(context, query + before) for query, context in lens)
        return 2 * tokens * self.layout.num_kv_heads * self.layout.head_size * self.kv_element_size

    @property
    def kv_element_size(self) -> int:
        return (self.cache_dtype or self.dtype).itemsize

    @cached_property
    def model(self) -> Model:
        """The layers' constants, as `attn_kernels.plan` takes them. Raises ValueError, TypeError."""
        model = self.layout.model(self.block_size, self.dtype, self.cache_dtype, self.scores.window)
        return dataclasses.replace(model, causal=self.scores.causal)

    @property
    def dtype_name(self) -> str:
        """`bfloat16`, or such as `bfloat16/float8_e4m3fn` if the caches have another type."""
        names = [str(dtype).removeprefix("torch.") for dtype in (self.dtype, self.cache_dtype) if dtype]
        return "/".join(dict.fromkeys(names))

    @property
    def features(self) -> dict[str, int]:
        """The features that the host knows at launch: a generated `choose` takes them in this order."""
        lengths = self.lengths if self.scores.window is None else self.lengths.in_window(self.scores.window)
        names = ("num_seqs", "num_query_tokens", "num_kv_tokens", "max_query_len", "max_seq_len")
        return {name: getattr(lengths, name) for name in names} | self.model.features

    @cached_property
    def lengths(self) -> Lengths:
        return Lengths.of(self.query_lens, self.context_lens)

    @property
    def parts(self) -> Parts:
        """The lengths of its leading decodes and of its prompts, as `attn_kernels.plan` takes them."""
        return Parts.of(self.query_lens, self.context_lens)

    @property
    def mixed_features(self) -> dict[str, int]:
        """The features of its parts: the arguments of `mixed_attention`'s generated `choose`, in order."""
        return mixed_features(self.parts, self.model)

    def __str__(self) -> str:
        text = f"{self.name} heads {self.layout} page {self.block_size} {self.dtype_name}"
        return f"{text} {self.scores}".rstrip()


def short(count: int) -> str:
    """8192 -> 8K, 100 -> 100."""
    return f"{count // 1024}K" if count and count % 1024 == 0 else str(count)


def decode(num_seqs: int, context: int) -> Batch:
    return Batch(f"decode {num_seqs}x{short(context)}", "decode", (1,) * num_seqs, (context,) * num_seqs)


def prefill(num_seqs: int, length: int) -> Batch:
    return Batch(f"prefill {num_seqs}x{short(length)}", "prefill", (length,) * num_seqs, (length,) * num_seqs)


def chunked_prefill(num_seqs: int, chunk: int, context: int) -> Batch:
    """A batch of the last `chunk` tokens of prompts of `context` tokens; the rest is in the cache."""
    name = f"chunk {num_seqs}x{short(chunk)}@{short(context)}"
    return Batch(name, "chunk", (chunk,) * num_seqs, (context,) * num_seqs)


def speculative(num_seqs: int, query_len: int, context: int) -> Batch:
    """A batch of speculative decoding: each sequence verifies `query_len` draft tokens (2 to 8)."""
    name = f"spec {num_seqs}x{query_len}@{short(context)}"
    return Batch(name, "spec", (query_len,) * num_seqs, (context,) * num_seqs)


def mixed(num_seqs: int, decode_share: float, context: int, chunk: int, seed: int = 0) -> Batch:
    """A batch of decodes at context/4 .. context, and then prompts of chunk/2 .. chunk tokens.

    With a share of 0 or 1 the batch is all prefill or all decode.
    """
    rng = random.Random(f"mixed/{num_seqs}/{decode_share}/{context}/{chunk}/{seed}")
    num_decodes = round(decode_share * num_seqs)
    decodes = [rng.randint(max(1, context // 4), context) for _ in range(num_decodes)]
    prompts = [rng.randint(max(1, chunk // 2), chunk) for _ in range(num_seqs - num_decodes)]
    kind = "mixed" if 0 < num_decodes < num_seqs else "decode" if num_decodes else "prefill"
    name = f"mixed {round(100 * decode_share)}% {num_seqs}x{short(context)}+{short(chunk)}"
    return Batch(name, kind, (1,) * num_decodes + tuple(prompts), (*decodes, *prompts))


def varlen(seed: int, max_seqs: int = 64, max_context: int = 16384, max_tokens: int = 200_000) -> Batch:
    """A random batch of log-uniform lengths; each sequence decodes, speculates, continues or prefills.

    The contexts of one batch sum to about `max_tokens` at most, the queries to about an eighth of that.
    """
    rng = random.Random(f"varlen/{seed}/{max_seqs}/{max_context}/{max_tokens}")

    def log_uniform(low: int, high: int) -> int:
        return min(high, round(low * math.exp(rng.random() * math.log(max(high, low) / low))))

    queries: list[int] = []
    contexts: list[int] = []
    for _ in range(log_uniform(1, max_seqs)):
        context = log_uniform(1, max_context)
        if contexts and sum(contexts) + context > max_tokens:
            break
        room = max(1, min(context, max_tokens // 8 - sum(queries)))
        query = rng.choice((1, rng.randint(2, 8), log_uniform(1, context), context))
        queries.append(min(query, room))
        contexts.append(context)
    return Batch(f"varlen seed={seed}", "varlen", tuple(queries), tuple(contexts))
