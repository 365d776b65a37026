"""What a kernel is compiled for, and the bundles of values that its device functions hand to each other."""

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class CompileParams:
    """The one compile-time argument of every kernel.

    Device functions name a trait as a ``tl.constexpr`` of their own before they use it in a shape, which
    Triton 3.6 needs.

    Attributes:
        head_size, head_padded: elements of a head, and the power of two that holds them.
        page_size: tokens a page holds.
        queries_per_kv: query heads that share a KV head; ``heads``: how many of them one program covers.
        block_m: rows of a query tile: query tokens times ``heads``, heads fastest.
        tile_size: keys of one step of the inner loop. num_stages: of that loop.
        num_segments: programs that share the keys of one query tile.
        query_unit, cache_unit: what strides are counted in, in elements; a wide access needs no more than
            to know that strides are multiples of 16 bytes.
        same_kv_strides: K and V are strided alike, so one set of offsets serves both.
        windowed, softcapped, alibi: whether scores have a sliding window, a soft cap, ALiBi slopes.
        bypass_l1: keys and values are loaded past the L1 cache.
    """

    head_size: int
    head_padded: int
    page_size: int
    queries_per_kv: int
    heads: int
    block_m: int
    tile_size: int
    num_stages: int
    num_segments: int
    query_unit: int
    cache_unit: int
    same_kv_strides: bool
    windowed: bool
    softcapped: bool
    alibi: bool
    bypass_l1: bool


class Cache(NamedTuple):
    """K and V of every sequence: pointers and strides in units of ``cache_unit``."""

    table_ptr: Any
    k_ptr: Any
    v_ptr: Any
    stride_table: Any
    stride_k_page: Any
    stride_k_slot: Any
    stride_k_head: Any
    stride_v_page: Any
    stride_v_slot: Any
    stride_v_head: Any


class Scoring(NamedTuple):
    """How a product of query and key becomes a score, as kernel arguments.

    A score in base 2 is ``product * factor``, or ``cap * tanh(product * factor / log2(e) / 2)`` with a soft
    cap.
    """

    factor: Any
    cap: Any
    window: Any
    slopes_ptr: Any
    sinks_ptr: Any


class Scales(NamedTuple):
    """What cached keys and values are multiplied by."""

    k: Any
    v: Any


class Block(NamedTuple):
    """The query rows of one program: ``num_queries`` tokens of one sequence times some query heads."""

    seq: Any
    first_query: Any
    num_queries: Any
    first_token: Any
    context_len: Any
    kv_head: Any
    head_in_group: Any


class Rows(NamedTuple):
    """A query tile: q [block_m, head_padded], the position among the keys and the ALiBi slope of each row."""

    q: Any
    positions: Any
    first_position: Any
    last_position: Any
    slopes: Any


class Keys(NamedTuple):
    """Keys and values of one sequence and KV head; without a table they are contiguous. Strides in elements.

    Nothing before key ``first`` (0 without a window) or after key ``last`` may be read, or weigh in.
    """

    table_ptr: Any
    k_ptr: Any
    v_ptr: Any
    k_page: Any
    k_slot: Any
    v_page: Any
    v_slot: Any
    first: Any
    last: Any
