"""The least work of a batch, in operations and bytes, and its time at a device's ceilings.

Roofline: Williams, Waterman, Patterson, CACM 52(4), 2009.
"""

from dataclasses import dataclass

from attn_kernels.measure.batches import Batch


@dataclass(frozen=True)
class Ceilings:
    bytes_per_s: float  # copy bandwidth, read plus written
    flops_per_s: float  # bfloat16 matrix products


@dataclass(frozen=True)
class Work:
    """What one launch must do at least."""

    flops: int  # floating-point operations
    bytes: int  # through device memory

    def floor_us(self, ceilings: Ceilings) -> float:
        """The time in microseconds below which no kernel can run."""
        return 1e6 * max(self.flops / ceilings.flops_per_s, self.bytes / ceilings.bytes_per_s)

    def tflops(self, time_us: float) -> float:
        return self.flops / time_us / 1e6

    def gbps(self, time_us: float) -> float:
        return self.bytes / time_us / 1e3


def visible_keys(query_len: int, context_len: int, window: int | None = None) -> int:
    """The query-key pairs that causal attention (bottom-right aligned) computes for one sequence."""
    pairs = query_len * (context_len - query_len) + query_len * (query_len + 1) // 2
    if window is None or context_len <= window:
        return pairs
    most = context_len - window  # keys hidden from the last query; the one before it misses one fewer
    least = max(0, most - query_len)
    return pairs - (most * (most + 1) - least * (least + 1)) // 2


def work(batch: Batch) -> Work:
    """Count two matrix products over the visible pairs, and one access to each tensor of the launch."""
    layout = batch.layout
    lens = zip(batch.query_lens, batch.context_lens, strict=True)
    pairs = sum(
        visible_keys(query, context, batch.scores.window) if batch.scores.causal else query * context
        for query, context in lens
    )
    rows = batch.lengths.num_query_tokens * layout.num_query_heads * layout.head_size
    index_bytes = 4 * (2 * batch.lengths.num_seqs + 1 + sum(batch.blocks_per_seq))
    return Work(
        flops=4 * pairs * layout.num_query_heads * layout.head_size,
        bytes=2 * rows * batch.dtype.itemsize + batch.kv_bytes + index_bytes,
    )
