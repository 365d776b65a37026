"""Named sets of batches, in the order of importance in which a limited run takes them."""

from collections.abc import Callable

import torch

from attn_kernels.measure.batches import (
    Batch,
    HeadLayout,
    chunked_prefill,
    decode,
    mixed,
    prefill,
    speculative,
    varlen,
)

K = 1024
QWEN_7B = HeadLayout(28, 4)
MULTI_HEAD = HeadLayout(32, 32)
FEW_HEADS = HeadLayout(16, 2)
SMALL_HEADS = HeadLayout(32, 8, 64)
LARGE_HEADS = HeadLayout(16, 8, 256)
OTHER_LAYOUTS = (QWEN_7B, MULTI_HEAD, FEW_HEADS, SMALL_HEADS, LARGE_HEADS)


def across(layouts: tuple[HeadLayout, ...], batches: list[Batch]) -> list[Batch]:
    return [batch.at(layout=layout) for layout in layouts for batch in batches]


def core() -> list[Batch]:
    """31 batches of serving, half of them pure decode as most steps are; 21 at Llama-3-8B's heads.

    Chosen for what servers form, before any was measured: batches of 1 to 256, contexts of 512 to 64K.
    """
    main = [
        decode(64, 8 * K),
        decode(1, 8 * K),
        prefill(1, 2 * K),
        mixed(64, 0.98, 4 * K, 512),
        decode(16, K),
        chunked_prefill(1, 2 * K, 8 * K),
        decode(256, K),
        decode(8, 8 * K),
        prefill(1, 8 * K),
        mixed(64, 0.5, 4 * K, 512),
        prefill(1, 8 * K).at(block_size=128),
    ]
    others = [
        decode(64, 4 * K).at(QWEN_7B),
        decode(16, 2 * K).at(MULTI_HEAD),
        decode(64, 4 * K).at(FEW_HEADS),
        prefill(1, 4 * K).at(QWEN_7B),
        mixed(64, 0.98, 4 * K, 512).at(FEW_HEADS),
        decode(32, 2 * K).at(SMALL_HEADS),
        decode(32, 2 * K).at(LARGE_HEADS),
        prefill(1, 4 * K).at(MULTI_HEAD),
        decode(1, 8 * K).at(FEW_HEADS),
        mixed(64, 0.98, 4 * K, 512).at(QWEN_7B),
    ]
    more = [
        decode(1, K),
        speculative(32, 4, 4 * K),
        decode(32, 16 * K),
        prefill(1, 512),
        decode(128, 512),
        varlen(0),
        decode(4, 64 * K),
        chunked_prefill(8, 512, 4 * K),
        prefill(4, 2 * K),
        decode(1, 64 * K),
    ]
    return [*main, *others, *more]


def decode_grid() -> list[Batch]:
    """Decode at batch 1 to 256 and contexts of 128 to 64K, at most 2M cached tokens a batch."""
    sizes = [(n, context) for context in (128, K, 8 * K, 64 * K) for n in (1, 4, 16, 64, 256)]
    return [decode(n, context) for n, context in sizes if n * context <= 2 * K * K]


def prefill_grid() -> list[Batch]:
    """Whole prompts of 128 to 32K tokens, and chunks over 2K to 64K of context."""
    prompts = [(1, 128), (1, 512), (1, 2 * K), (1, 8 * K), (1, 32 * K), (8, 128), (8, K), (32, 512)]
    chunks = [(1, 512, 2 * K), (1, 2 * K, 8 * K), (1, 2 * K, 64 * K), (8, 256, 8 * K)]
    return [*(prefill(*shape) for shape in prompts), *(chunked_prefill(*shape) for shape in chunks)]


def mixed_grid() -> list[Batch]:
    """Decode shares of 0, 50, 98 and 100% at three sizes, short speculative queries, random batches."""
    sizes = ((48, 8 * K, 2 * K), (64, 4 * K, 512), (256, 2 * K, 512))
    shares = [
        mixed(n, share, context, chunk) for share in (0.0, 0.5, 0.98, 1.0) for n, context, chunk in sizes
    ]
    spec = [speculative(n, query, 4 * K) for n in (4, 64) for query in (2, 8)]
    return [*shares, *spec, *(varlen(seed) for seed in range(4))]


def layouts() -> list[Batch]:
    """Six batches at every other head layout and head size."""
    again = [
        decode(1, 8 * K),
        decode(16, 2 * K),
        decode(64, 4 * K),
        prefill(1, 2 * K),
        chunked_prefill(1, K, 8 * K),
        mixed(64, 0.98, 4 * K, 512),
    ]
    return across(OTHER_LAYOUTS, again)


def full() -> list[Batch]:
    """All three grids at Llama-3-8B's heads, then six batches at every other head layout."""
    return [*decode_grid(), *prefill_grid(), *mixed_grid(), *layouts()]


def quick() -> list[Batch]:
    """The six batches that show most."""
    return [
        decode(1, 8 * K),
        decode(64, 8 * K),
        prefill(1, 2 * K),
        prefill(1, 8 * K),
        chunked_prefill(1, 2 * K, 8 * K),
        mixed(64, 0.98, 4 * K, 512),
    ]


def tiny() -> list[Batch]:
    """A few tokens each: exercises the plumbing without a GPU."""
    shapes = [
        decode(2, 40),
        prefill(1, 24),
        chunked_prefill(2, 5, 40),
        speculative(2, 3, 33),
        mixed(4, 0.5, 32, 16),
        varlen(0, max_seqs=4, max_context=48, max_tokens=160),
    ]
    return [*across((HeadLayout(4, 2, 32),), shapes), prefill(1, 24).at(layout=HeadLayout(2, 2, 32))]


BATCH_SETS: dict[str, Callable[[], list[Batch]]] = {
    "core": core,
    "decode": decode_grid,
    "prefill": prefill_grid,
    "mixed": mixed_grid,
    "layouts": layouts,
    "full": full,
    "quick": quick,
    "tiny": tiny,
}


def select(
    name: str,
    *,
    only: str = "",
    heads: tuple[HeadLayout, ...] = (),
    block_size: int | None = None,
    dtype: str | None = None,
) -> list[Batch]:
    """The set `name`; `only` keeps batches whose text contains it, `heads` replaces the set's own layouts."""
    batches = [
        batch.at(block_size=block_size, dtype=getattr(torch, dtype) if dtype else None)
        for batch in BATCH_SETS[name]()
    ]
    if heads:
        batches = across(heads, batches)
    unique = dict.fromkeys(batches)
    return [batch for batch in unique if only in str(batch)]
