"""The short causal convolution of flash-linear-attention."""

import fla.modules.causal_conv1d.ops as package
import torch
from torch.nn.functional import pad, silu

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


def reference(x, weight, bias, residual, activation):
    padded, T = pad(x.float(), (0, 0, weight.shape[1] - 1, 0)), x.shape[1]
    found = sum(padded[:, w : w + T] * weight[:, w].float() for w in range(weight.shape[1]))
    found = found if bias is None else found + bias.float()
    return found if activation is None else silu(found), None


TUNING = Tuning(
    kernel=package.causal_conv1d_fwd_kernel,
    name="causal_conv1d",
    call=package.causal_conv1d_fwd,
    arguments=arguments,
    reference=reference,
    features={"B": "B", "T": "T"},
    **tuned("causal_conv1d"),
)
