"""The short causal convolution of flash-linear-attention."""

import fla.modules.causal_conv1d.ops as package
import torch

from benchmarks.packages.models import DTYPE, tuned
from triton_tune import Tuning


def arguments(B, T, D, W, bias, activation):
    return {
        "x": torch.randn(B, T, D, dtype=DTYPE),
        "weight": torch.randn(D, W, dtype=DTYPE),
        "bias": torch.randn(D, dtype=DTYPE) if bias else None,
        "residual": None,
        "activation": "silu" if activation else None,
    }


TUNING = Tuning(
    kernel=package.causal_conv1d_fwd_kernel,
    name="causal_conv1d",
    call=package.causal_conv1d_fwd,
    arguments=arguments,
    features={"B": "B", "T": "T"},
    **tuned("causal_conv1d"),
)
