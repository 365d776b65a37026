"""Compile-time constants of kernels, and bundles of values that device functions pass to each other."""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple


@dataclass(frozen=True, slots=True)
class CompileParams:
    """The compile-time argument ``const`` of every kernel that reads keys.

    A device function binds a field to a local ``tl.constexpr`` before it uses the field in a tensor's shape:
    Triton 3.6 needs that.
    """

    head_size: int  # elements of a head
    head_padded: int  # the power of two that holds them
    columns: int  # of the output that one program computes: all of head_padded, or half of a wide head
    page_size: int  # tokens per page
    gqa_group_size: int  # query heads that share a KV head
    heads: int  # how many of these one program covers
    block_m: int  # rows of a query tile: query tokens times heads, heads fastest
    tile_size: int  # keys of one step of the inner loop
    num_stages: int  # of the inner loop
    # Strides of queries and of caches are counted in this many elements. A compiler that knows them to be
    # multiples of 16 bytes needs to know no more for a wide access.
    query_unit: int
    cache_unit: int
    same_kv_strides: bool  # K and V have equal strides, so one set of offsets serves both
    windowed: bool  # there is a sliding window
    softcapped: bool  # there is a soft cap
    alibi: bool  # there are ALiBi slopes
    bypass_l1: bool  # keys and values are loaded past the L1 cache
    paired: bool = False  # cached fp8 numbers are loaded two at a time
    converts_e4m3: bool = False  # cached numbers are fp8, which instructions of this NVIDIA GPU convert
    invariant: bool = False  # contexts are divided at the same keys in every batch (``invariant``)

    @property
    def block_q(self) -> int:
        return self.block_m // self.heads

    @property
    def head_splits(self) -> int:
        return -(-self.gqa_group_size // self.heads)

    @property
    def column_parts(self) -> int:
        return self.head_padded // self.columns


@dataclass(frozen=True, slots=True)
class ReduceParams:
    """The compile-time argument ``const`` of ``reduce_kernel``; fields as in ``CompileParams``."""

    head_size: int
    head_padded: int
    query_unit: int
    windowed: bool
    invariant: bool
    splits: int  # that a program holds in registers: at most, or of ``invariant`` one at a time
    block_m: ClassVar[int] = 1
    heads: ClassVar[int] = 1
    gqa_group_size: ClassVar[int] = 1

    @classmethod
    def of(cls, const: CompileParams, splits: int) -> "ReduceParams":
        of_kernel = (const.head_size, const.head_padded, const.query_unit, const.windowed, const.invariant)
        return cls(*of_kernel, splits)

    @property
    def columns(self) -> int:
        """Columns of a head that a program of one warp joins, at 64 registers per thread."""
        return min(self.head_padded, 2048 // self.splits)


class PagedCache(NamedTuple):
    """Keys and values of every sequence."""

    table_ptr: Any
    stride_table: Any  # in page ids
    k: Any  # the pointer, and strides of a page, a slot and a head in units of ``cache_unit``
    v: Any


class Scoring(NamedTuple):
    """Kernel arguments that turn the product of a query and a key into a score.

    A score in base 2 is ``product * factor``. With a soft cap it is
    ``cap * tanh(product * factor / log2(e) / 2)``.
    """

    factor: Any
    cap: Any
    window: Any  # keys that a query sees up to its own
    ahead: Any  # keys that it sees behind its own; None in causal attention
    slopes_ptr: Any
    sinks_ptr: Any
    ranges: Any  # the pointer to ``bidirectional_ranges``, and how many a sequence has; None for none


class QBlock(NamedTuple):
    """The queries of one program: consecutive query tokens of one sequence, times some query heads."""

    seq: Any
    first_query: Any  # within the sequence's query tokens
    num_queries: Any  # query tokens; below 1 past the sequence's end
    first_token: Any  # int64, within the batch
    context_len: Any  # keys before the sequence's first query token
    kv_head: Any  # int64
    head_in_group: Any  # the first query head, among those of the KV head
    num_keys: Any  # of the sequence
    first_column: Any  # of the output


class QueryTile(NamedTuple):
    """The query rows of a Q-Block. Positions count keys of the sequence."""

    q: Any  # [block_m, head_padded]; of paired caches its even columns [block_m, head_padded // 2]
    odd: Any  # of paired caches the odd columns of q; else unused
    powers: Any  # [block_m], by which q was divided for caches of one byte a number; else unused
    positions: Any  # [block_m], of each row's own key
    first_position: Any
    last_position: Any
    slopes: Any  # [block_m], ALiBi in base 2
    last_keys: Any  # [block_m], the last key that each row sees
    shared_last: Any  # the first of these


class SequenceKeys(NamedTuple):
    """Keys and values of one sequence and KV head; strides are in elements.

    No key before ``first`` or after ``last`` is read or has a weight.
    """

    table_ptr: Any
    k_ptr: Any
    v_ptr: Any
    k_page: Any
    k_slot: Any
    v_page: Any
    v_slot: Any
    v_size: Any  # elements of a value, from the first column that the program computes on
    first: Any
    last: Any
