"""The products of keys in a chunk, scaled by gates, of DeltaNet in flash-linear-attention."""

import fla.ops.common.chunk_scaled_dot_kkt as package
import torch

from benchmarks.packages.models import DTYPE, tuned
from triton_tune import Tuning

CHUNK = 64


def arguments(B, T, H, HV, K, gated, packed):
    made = {"k": torch.randn(B, T, H, K, dtype=DTYPE) / K**0.5, "beta": torch.rand(B, T, HV, dtype=DTYPE)}
    if gated:  # within chunks, cumulative logarithms to base 2
        steps = -0.05 * torch.rand(B, -(-T // CHUNK), CHUNK, HV)
        made["g"] = steps.cumsum(2).flatten(1, 2)[:, :T].contiguous()
    if packed:
        made = {name: tensor.flatten(0, 1)[None] for name, tensor in made.items()}
        made["cu_seqlens"] = T * torch.arange(B + 1)
    return made


TUNING = Tuning(
    kernel=package.chunk_scaled_dot_kkt_fwd_kernel,
    name="chunk_kkt",
    call=package.chunk_scaled_dot_kkt_fwd,
    arguments=arguments,
    features={"T": "T", "B": "k.shape[0]"},
    **tuned("chunk_kkt"),
)
