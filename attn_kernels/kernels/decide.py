"""What is decided on the device, from the facts of the batch that a captured graph is replayed for."""

import triton
import triton.language as tl  # noqa: F401 - Triton's interpreter looks for it


@triton.jit
def least_tiles(
    num_seqs,
    num_query_tokens,
    num_kv_tokens,
    max_query_len,
    max_seq_len,
    num_query_heads,
    num_kv_heads,
    head_size,
    block_size,
    kv_element_size,
):
    """How many tiles of keys a program gets at least, 1 or more: where it is more, fewer programs share the
    work of a small batch, and fewer parts are joined.

    The arguments are the features of a generated ``choose``, so a function compiled from a tree can stand
    here. 1 was the fastest of 1, 2, 4 and 8 on an H100 (docs/graphs.md). ``least_tiles_on_host`` is its twin.
    """
    return 1


def least_tiles_on_host(
    *,
    num_seqs: int,
    num_query_tokens: int,
    num_kv_tokens: int,
    max_query_len: int,
    max_seq_len: int,
    num_query_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    kv_element_size: int,
) -> int:
    """What ``least_tiles`` returns."""
    return 1
