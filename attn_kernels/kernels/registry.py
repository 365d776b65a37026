"""The registry of variants: what a config's ``variant`` may be."""

from attn_kernels.kernels import (
    naive,
    pod,
    prefix_prefill,
    qblock,
    segmented,
    split,
    static_grid,
    stream_k,
)
from attn_kernels.kernels.variant import Variant

VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        naive.VARIANT,
        prefix_prefill.VARIANT,
        split.VARIANT,
        qblock.VARIANT,
        segmented.VARIANT,
        static_grid.VARIANT,
        stream_k.VARIANT,
        pod.VARIANT,
    )
}
