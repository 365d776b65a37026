"""What all steps share: the batch that each gets, and the search for a program's Q-Block."""

from dataclasses import dataclass
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor


@dataclass(frozen=True)
class Shape:
    """What is fixed for a model; kernels are compiled for it."""

    num_kv_heads: int
    group: int  # query heads that share a KV head
    head_size: int
    block_size: int  # tokens that a page of the cache holds

    @property
    def padded(self) -> int:
        """The power of two that holds a head."""
        return triton.next_power_of_2(self.head_size)

    @property
    def factor(self) -> float:
        """Of scores in base 2: exp2(factor * q @ k) is exp(q @ k / sqrt(head_size))."""
        return self.head_size**-0.5 * 1.4426950408889634


class Batch(NamedTuple):
    """One step of a server, causal: query i of a sequence sees keys 0 .. seq_len - query_len + i.

    All tensors are contiguous; q, caches and out share one dtype, float16 or bfloat16.
    """

    q: Tensor  # [num_tokens, num_query_heads, head_size]
    k_cache: Tensor  # [num_blocks, block_size, num_kv_heads, head_size]
    v_cache: Tensor  # as k_cache
    out: Tensor  # as q
    block_tables: Tensor  # int32 [num_seqs, max_blocks]: the pages of each sequence
    seq_lens: Tensor  # int32 [num_seqs]: keys, with those of the query tokens
    query_start_loc: Tensor  # int32 [num_seqs + 1]: the first query token of each sequence
    host_query_lens: tuple[int, ...]  # lengths that the host knows as well
    host_seq_lens: tuple[int, ...]

    @property
    def shape(self) -> Shape:
        _, block_size, num_kv_heads, head_size = self.k_cache.shape
        return Shape(num_kv_heads, self.q.shape[1] // num_kv_heads, head_size, block_size)

    @property
    def args(self) -> tuple:
        """The first arguments of every kernel; the last is the stride of `block_tables`."""
        return (*self[:7], len(self.seq_lens), self.block_tables.stride(0))

    def block_m(self, prompts: int = 64) -> int:
        """Rows of a Q-Block: `prompts` if there are any, else the fewest that a tensor core takes."""
        fewest = max(16, triton.next_power_of_2(self.shape.group))
        return max(fewest, prompts) if max(self.host_query_lens) > 1 else fewest

    def num_q_blocks(self, block_m: int) -> int:
        """At least as many as there are; the host needs no lengths for it (section 4.4)."""
        return self.q.shape[0] // (block_m // self.shape.group) + len(self.seq_lens)


@triton.jit
def find_q_block(starts, num_seqs, number, BLOCK_Q: tl.constexpr):
    """The sequence of the batch's Q-Block `number`, by binary search, and the block's number there.

    Sequence i has numbers from starts[i] // BLOCK_Q + i on: an upper bound of the blocks before it (section
    4.4). With BLOCK_Q = 0, `number` is that of a token.
    """
    base = tl.load(starts)
    low, high, before = 0, num_seqs, 0
    while high - low > 1:
        middle = (low + high) // 2
        first = tl.load(starts + middle) - base
        if BLOCK_Q > 0:
            first = first // BLOCK_Q + middle
        inside = first <= number
        low, high = tl.where(inside, middle, low), tl.where(inside, high, middle)
        before = tl.where(inside, first, before)
    return low, number - before
