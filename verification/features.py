"""Score options, cache types and strides of a launch, drawn at random for checks."""

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attn_kernels.measure.batches import HeadLayout

FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class LaunchFeatures:
    """The features of a launch beyond a plain causal softmax over contiguous tensors."""

    window: int | None = None
    softcap: float = 0.0
    alibi: bool = False
    sinks: str = ""  # `float32`, or `half` for the queries' type; "" for none
    scales: str = ""  # `float` or `tensor`; "" for none
    strides: str = ""  # q and out: `fused` slices of a QKV product, `odd` gaps of 3 elements; "" contiguous
    fp8: bool = False

    @property
    def names(self) -> list[str]:
        """Return a name for each feature. Equal names share compiled kernels, which depend on no number."""
        flags = {
            "window": self.window is not None,
            "soft cap": self.softcap > 0.0,
            "ALiBi": self.alibi,
            f"sinks {self.sinks}": bool(self.sinks),
            "fp8 cache": self.fp8,
            f"{self.scales} scales": bool(self.scales),
            f"{self.strides} strides": bool(self.strides),
        }
        return [name for name, given in flags.items() if given] or ["none"]

    def __str__(self) -> str:
        return "+".join(self.names)

    def options(self, layout: HeadLayout, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
        """Return the keyword arguments of `attn_kernels.run` and of the reference."""
        heads = layout.num_query_heads
        options: dict[str, Any] = {"sliding_window": self.window, "softcap": self.softcap}
        if self.alibi:
            exponents = torch.arange(1, heads + 1, dtype=torch.float32, device=device)
            options["alibi_slopes"] = 2.0 ** (-8.0 * exponents / heads)
        if self.sinks:
            sink_type = torch.float32 if self.sinks == "float32" else dtype
            options["sinks"] = torch.linspace(-1.0, 3.0, heads, device=device).to(sink_type)
        if self.scales == "float":
            options |= {"k_scale": 0.4, "v_scale": 3.0}
        if self.scales == "tensor":
            options["k_scale"] = torch.tensor([0.4], device=device)
            options["v_scale"] = torch.tensor(3.0, device=device)
        return options


def draw(rng: random.Random, *, fp8: bool) -> LaunchFeatures:
    """Draw each feature in about a third of the calls, none in a sixth; scales need an fp8 cache."""
    if rng.random() < 1 / 6:
        return LaunchFeatures(fp8=fp8)
    return LaunchFeatures(
        window=rng.choice((1, 17, 128, 1000)) if rng.random() < 0.33 else None,
        softcap=rng.choice((5.0, 30.0)) if rng.random() < 0.25 else 0.0,
        alibi=rng.random() < 0.25,
        sinks=rng.choice(("float32", "half")) if rng.random() < 0.33 else "",
        scales=rng.choice(("", "float", "tensor", "tensor")) if fp8 else "",
        strides=rng.choice(("fused", "odd")) if rng.random() < 0.33 else "",
        fp8=fp8,
    )


def with_strides(tensor: Tensor, strides: str) -> Tensor:
    """Return a tensor of the same values at other strides, with NaN in the gaps."""
    if not strides:
        return tensor
    tokens, heads, size = tensor.shape
    shape = (tokens, heads + 2, size) if strides == "fused" else (tokens, heads, size + 3)
    wide = torch.full(shape, torch.nan, dtype=tensor.dtype, device=tensor.device)
    return wide[:, :heads, :size].copy_(tensor)
