"""Named sets of batches, in the order of importance in which a limited run takes them."""

from collections.abc import Callable

import torch

from benchmarks.batches import (
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
OTHER_LAYOUTS = (HeadLayout(28, 4), HeadLayout(32, 32), HeadLayout(16, 2))


def across(layouts: tuple[HeadLayout, ...], batches: list[Batch]) -> list[Batch]:
    return [batch.at(layout=layout) for layout in layouts for batch in batches]


def core() -> list[Batch]:
    """What a server does most, at Llama-3-8B's heads; then five of those batches at three other layouts."""
    main = [
        *(
            decode(n, context)
            for n, context in ((1, 8 * K), (64, 8 * K), (16, K), (256, K), (8, 2 * K), (1, 64 * K))
        ),
        *(prefill(n, length) for n, length in ((1, 2 * K), (1, 8 * K), (1, 512), (4, 2 * K))),
        *(chunked_prefill(*shape) for shape in ((1, 2 * K, 8 * K), (1, 512, 16 * K), (8, 512, 4 * K))),
        *(mixed(64, share, 4 * K, 512) for share in (0.5, 0.98)),
        speculative(32, 4, 4 * K),
        varlen(0),
    ]
    again = [
        decode(1, 8 * K),
        decode(64, 8 * K),
        prefill(1, 2 * K),
        prefill(1, 8 * K),
        mixed(64, 0.98, 4 * K, 512),
    ]
    return main + across(OTHER_LAYOUTS, again)


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
    sizes = ((16, 2 * K, 2 * K), (64, 4 * K, 512), (256, 2 * K, 512))
    shares = [
        mixed(n, share, context, chunk) for share in (0.0, 0.5, 0.98, 1.0) for n, context, chunk in sizes
    ]
    spec = [speculative(n, query, 4 * K) for n in (4, 64) for query in (2, 8)]
    return [*shares, *spec, *(varlen(seed) for seed in range(4))]


def full() -> list[Batch]:
    """All three grids at Llama-3-8B's heads, then five batches at other layouts and head sizes."""
    sizes = (HeadLayout(32, 8, 64), HeadLayout(16, 8, 256))
    again = [
        decode(1, 8 * K),
        decode(64, 4 * K),
        prefill(1, 2 * K),
        prefill(1, 8 * K),
        mixed(64, 0.98, 4 * K, 512),
    ]
    return [*decode_grid(), *prefill_grid(), *mixed_grid(), *across((*OTHER_LAYOUTS, *sizes), again)]


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
    "full": full,
    "quick": quick,
    "tiny": tiny,
}


def select(
    name: str,
    *,
    only: str = "",
    layouts: tuple[HeadLayout, ...] = (),
    block_size: int | None = None,
    dtype: str | None = None,
) -> list[Batch]:
    """The set `name`; `only` keeps batches whose text contains it, `layouts` replaces the set's own."""
    batches = [
        batch.at(block_size=block_size, dtype=getattr(torch, dtype) if dtype else None)
        for batch in BATCH_SETS[name]()
    ]
    if layouts:
        batches = across(layouts, batches)
    unique = dict.fromkeys(batches)
    return [batch for batch in unique if only in str(batch)]
