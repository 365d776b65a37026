"""The chunk states of linear attention in flash-linear-attention."""

import fla.ops.common.chunk_h as package
import torch

from benchmarks.packages.models import DTYPE, tuned
from triton_tune import Tuning

CHUNK = 64


def arguments(decay, B, T, H, K, V):
    made = {"k": torch.randn(B, T, H, K, dtype=DTYPE) / 8, "v": torch.randn(B, T, H, V, dtype=DTYPE)}
    if decay == "gamma":
        made["g_gamma"] = (1 - 2.0 ** (-5 - torch.arange(H) / 4)).log2()
    elif decay != "none":  # within chunks, cumulative logarithms to base 2
        steps = -0.05 * torch.rand(B, -(-T // CHUNK), CHUNK, *{"g": (H,), "gk": (H, K), "gv": (H, V)}[decay])
        made[decay] = steps.cumsum(2).flatten(1, 2)[:, :T].contiguous()
    return made


TUNING = Tuning(
    kernel=package.chunk_fwd_kernel_h,
    name="chunk_h",
    call=package.chunk_fwd_h,
    arguments=arguments,
    features={"T": "T", "sequences": "k.shape[0] * H", "USE_G_GAMMA": "USE_G_GAMMA"},
    **tuned("chunk_h"),
)
