"""Attention whose results for a sequence have the same bits in every batch.

Every context is divided at the same keys, and ``join_states`` joins the states of its splits in their order:
within a program that computes all splits of a Q-Block, or in ``reduce_kernel`` if each split had a program.
So the batch decides only who computes what; docs/kernels.md ("The same bits in every batch") says more. The
idea is that of "Defeating Nondeterminism in LLM Inference" (He et al., Thinking Machines Lab, 2025).
"""

from collections.abc import Callable

from attn_kernels.core.config import Config
from attn_kernels.core.lengths import Lengths
from attn_kernels.core.model import Model
from attn_kernels.core.structures import Launch, Layer, OfPlan, Plan
from attn_kernels.kernels.qblock import PARTIALS, bind_q_blocks, qblock_kernel
from attn_kernels.kernels.splits import (
    find_splits,
    query_tokens_of_tile,
    reduce_kernel,
    take_partials,
)
from attn_kernels.kernels.variant import ConfigGrid, Variant

SPLIT_KEYS = 1024  # of each split; a multiple of every tile size. Another number gives other bits


def find_invariant_splits(
    config: Config, model: Model, lengths: Lengths, multiprocessors: int, max_partials: int
) -> tuple[int, int]:
    """As ``find_splits``: each split has a program where splits pay, and partial results have room."""
    unequal = lengths.of_unknown_total(model.sliding_window)
    splits, _ = find_splits(config, model, unequal, multiprocessors, max_partials)
    count = -(-lengths.max_seq_len // SPLIT_KEYS)
    room = max_partials // max(1, lengths.num_query_tokens * model.num_query_heads)
    room = min(room, (2**16 - 1) // model.num_kv_heads)  # programs along CUDA's second axis
    return (count if splits > 1 and count <= room else 1), SPLIT_KEYS


def bind(plan: Plan, layer: Layer) -> tuple[Launch, ...]:
    num_splits = _bind_num_splits(layer, query_tokens_of_tile(plan.config, plan.model))
    return bind_q_blocks(plan, layer, PARTIALS, None, OfPlan(num_splits))


def _bind_num_splits(layer: Layer, block_q: int) -> Callable[[Plan], int]:
    """A function from a plan to the programs of a Q-Block, of which few have keys within a window."""
    if layer.sliding_window is None:
        return lambda plan: plan.num_splits
    most = 1 + -(-(layer.sliding_window + (layer.ahead or 0) + block_q - 1) // SPLIT_KEYS)
    return lambda plan: min(plan.num_splits, most)


VARIANT = Variant(
    name="invariant",
    bind=bind,
    batch_invariant=True,
    find_splits=find_invariant_splits,
    scratch=take_partials,
    kernels=(qblock_kernel, reduce_kernel),
    samples=(Config("invariant", block_m=64, tile_size=32),),
    grids=(
        ConfigGrid(M=(64,), T=(32, 64), W=(4, 8), S=(2, 3)),
        ConfigGrid(M=(64,), T=(128,), W=(4, 8), S=(2,)),
    ),
)
