"""The config of a captured graph: one for every batch up to the maxima that the graph is captured for.

A module chooses for one batch, but a graph is replayed for batches that it was not captured for. If decode
programs (sequences times KV heads) are few, only splitting contexts fills the GPU, and the choice for the
maxima splits contexts of any length. If they are many, the choice for the longest contexts is wrong for short
ones. Then the GPU divides the work at each replay: ``ON_DEVICE`` finds the row of this batch and with it a
number of segments, and ``STREAM_K`` shares all tiles evenly. ``ON_DEVICE`` is left out where no module finds
rows in Triton, or where even the longest contexts are not split.
docs/graphs.md has the figures.
"""

from attn_kernels.core.config import Config
from attn_kernels.core.model import Model

STREAM_K = Config(
    "stream_k", block_m=16, tile_size=64, num_warps=4, num_stages=3, programs_per_sm=3, max_registers=168
)
ON_DEVICE = Config("segmented", block_m=16, tile_size=64, num_segments=16, num_stages=3, device_segments=1)
TIMED_ON = ("sm_90",)  # elsewhere these configs are untimed, and may not fit
MAX_HEAD_SIZE = 128  # above, STREAM_K spills registers
# Decode programs a multiprocessor, timed on 132 multiprocessors. Up to FEW the module's choice is best, up
# to SOME splitting on the device is best, and above that STREAM_K.
FEW, SOME = 0.5, 1.0


def for_decode(
    model: Model, num_seqs: int, max_query_len: int, multiprocessors: int, can_split_on_device: bool
) -> Config | None:
    """The config of a decode graph in place of the module's choice; None where that is best.

    A decode graph has so few query tokens a sequence that one query tile holds them, for all query heads of a
    KV head. It has one program for each sequence and KV head.

    Args:
        num_seqs, max_query_len: the maxima of the graph.
        multiprocessors: of the GPU.
        can_split_on_device: whether Triton code finds the row, and the row of the maxima splits contexts.
    """
    if max_query_len != 1 and max_query_len * model.queries_per_kv > STREAM_K.block_m:
        return None
    if model.head_size > MAX_HEAD_SIZE:
        return ON_DEVICE if can_split_on_device else None
    programs = num_seqs * model.num_kv_heads
    if programs <= FEW * multiprocessors:
        return None
    return ON_DEVICE if can_split_on_device and programs <= SOME * multiprocessors else STREAM_K


def possible_for_decode(model: Model, can_split_on_device: bool) -> list[Config]:
    """List what ``for_decode`` can return for graphs of a model."""
    on_device = [ON_DEVICE] if can_split_on_device else []
    return on_device if model.head_size > MAX_HEAD_SIZE else [*on_device, STREAM_K]
