"""The constants of a model's attention layers."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from attn_kernels.core.checks import DTYPES, FP8, MAX_HEAD_SIZE, MAX_TOKENS, check_bool, check_int


@dataclass(frozen=True, slots=True)
class Model:
    """The constants of attention layers. Under tensor parallelism, heads are one GPU's share.

    Raises:
        TypeError: a constant of the wrong type, or an unsupported dtype.
        ValueError: a size that is unsupported, or query heads that are not a multiple of the KV heads.
    """

    num_query_heads: int  # a multiple of num_kv_heads (multi-head, grouped-query, multi-query)
    num_kv_heads: int
    head_size: int  # elements, 1 to 512
    block_size: int  # tokens per page of the caches, any number
    dtype: torch.dtype  # torch.float16 or torch.bfloat16: of the queries, the output and the caches
    cache_dtype: torch.dtype | None = None  # torch.float8_e4m3fn if the caches are fp8; else None
    sliding_window: int | None = None  # keys that a query of these layers sees; None: all
    fp8_queries: bool = False  # prompts over fp8 caches may round queries to e4m3, each row by its own scale
    batch_invariant: bool = False  # a sequence's results have the same bits whatever else is in the batch
    causal: bool = True  # False: queries also see later keys, and a sequence may have more queries than keys

    def __post_init__(self) -> None:
        for name in ("num_query_heads", "num_kv_heads", "head_size", "block_size"):
            check_int(name, getattr(self, name), 1)
        if self.head_size > MAX_HEAD_SIZE:
            raise ValueError(f"head_size is {self.head_size}, but at most {MAX_HEAD_SIZE} is supported")
        if self.num_query_heads % self.num_kv_heads:
            needed = f"a multiple of num_kv_heads ({self.num_kv_heads}) is needed"
            raise ValueError(f"num_query_heads is {self.num_query_heads}, but {needed}")
        if self.dtype not in DTYPES:
            raise TypeError(f"dtype is {self.dtype!r}, but torch.float16 or torch.bfloat16 is needed")
        if self.cache_dtype not in (None, self.dtype, FP8):
            raise TypeError(f"cache_dtype is {self.cache_dtype!r}, but {self.dtype} or {FP8} is needed")
        if self.sliding_window is not None:
            check_int("sliding_window", self.sliding_window, 1)
            object.__setattr__(self, "sliding_window", min(self.sliding_window, MAX_TOKENS))
        for name in ("fp8_queries", "batch_invariant", "causal"):
            check_bool(name, getattr(self, name))
        if self.fp8_queries and self.kv_element_size > 1:
            raise ValueError(
                f"fp8_queries is True, but cache_dtype is {self.cache_dtype}: fp8 caches are needed"
            )
        if self.cache_dtype == self.dtype:  # two spellings of one model must be equal
            object.__setattr__(self, "cache_dtype", None)

    @property
    def features(self) -> dict[str, int]:
        """The features of generated modules that are the same for every batch of the model."""
        return {
            "num_query_heads": self.num_query_heads,
            "num_kv_heads": self.num_kv_heads,
            "head_size": self.head_size,
            "block_size": self.block_size,
            "kv_element_size": self.kv_element_size,
        }

    @property
    def gqa_group_size(self) -> int:
        """Query heads that share a KV head."""
        return self.num_query_heads // self.num_kv_heads

    @property
    def kv_element_size(self) -> int:
        """Bytes of an element of the caches."""
        return (self.cache_dtype or self.dtype).itemsize


def models_of(models: Model | Iterable[Model]) -> list[Model]:
    """The models of a server: one, or one for each kind of layer. Raises TypeError and ValueError."""
    listed = list(models) if isinstance(models, Iterable) else [models]
    for model in listed:
        if not isinstance(model, Model):
            raise TypeError(f"models holds {model!r:.80}, but an attn_kernels.Model is needed")
    if not listed:
        raise ValueError("models is empty, but a model is needed")
    return listed
