"""What a launch may have beside a plain causal softmax, drawn at random for checks."""

import random
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attn_kernels.measure.batches import HeadLayout

FP8 = torch.float8_e4m3fn


@dataclass(frozen=True)
class Features:
    """Score options, the cache's type and the tensors' strides of one launch.

    `sinks` and `scales` say how they are given: "" not at all; sinks as `float32` or in the queries' type;
    scales as `float` or `tensor`. `strides` of q and out: "" contiguous, `fused` a slice of a QKV product's
    output, `odd` with gaps of three elements. `new_keys`: the query tokens' keys are handed over as well.
    """

    window: int | None = None
    softcap: float = 0.0
    alibi: bool = False
    sinks: str = ""
    scales: str = ""
    strides: str = ""
    fp8: bool = False
    new_keys: bool = False

    @property
    def compiled(self) -> tuple[object, ...]:
        """What of this a kernel is compiled for: no number."""
        numbers = (self.window is not None, self.softcap > 0.0, self.scales == "tensor")
        return (*numbers, self.alibi, self.sinks, self.strides, self.fp8, self.new_keys)

    @property
    def names(self) -> list[str]:
        """One word each, for tables."""
        flags = {
            "window": self.window is not None,
            "soft cap": self.softcap > 0.0,
            "ALiBi": self.alibi,
            f"sinks {self.sinks}": bool(self.sinks),
            "fp8 cache": self.fp8,
            f"{self.scales} scales": bool(self.scales),
            f"{self.strides} strides": bool(self.strides),
            "new keys": self.new_keys,
        }
        return [name for name, given in flags.items() if given] or ["none"]

    def __str__(self) -> str:
        return "+".join(self.names)

    def options(self, layout: HeadLayout, dtype: torch.dtype, device: torch.device) -> dict[str, Any]:
        """The keyword arguments of `attn_kernels.run` and of the reference."""
        heads = layout.num_query_heads
        found: dict[str, Any] = {"sliding_window": self.window, "softcap": self.softcap}
        if self.alibi:
            exponents = torch.arange(1, heads + 1, dtype=torch.float32, device=device)
            found["alibi_slopes"] = 2.0 ** (-8.0 * exponents / heads)
        if self.sinks:
            kind = torch.float32 if self.sinks == "float32" else dtype
            found["sinks"] = torch.linspace(-1.0, 3.0, heads, device=device).to(kind)
        if self.scales:
            tensors = self.scales == "tensor"
            found["k_scale"] = torch.tensor([0.4], device=device) if tensors else 0.4
            found["v_scale"] = torch.tensor(3.0, device=device) if tensors else 3.0
        return found


def draw(rng: random.Random) -> Features:
    """Each feature in about a third of the draws, none in a sixth; scales only with fp8 caches."""
    if rng.random() < 1 / 6:
        return Features()
    fp8 = rng.random() < 0.33
    return Features(
        window=rng.choice((1, 17, 128, 1000)) if rng.random() < 0.33 else None,
        softcap=rng.choice((5.0, 30.0)) if rng.random() < 0.25 else 0.0,
        alibi=rng.random() < 0.25,
        sinks=rng.choice(("float32", "half")) if rng.random() < 0.33 else "",
        scales=rng.choice(("", "float", "tensor", "tensor")) if fp8 else "",
        strides=rng.choice(("fused", "odd")) if rng.random() < 0.33 else "",
        fp8=fp8,
        new_keys=not fp8 and rng.random() < 0.4,
    )


def spread(tensor: Tensor, strides: str) -> Tensor:
    """The same values at other strides; NaN lies in the gaps."""
    if not strides:
        return tensor
    tokens, heads, size = tensor.shape
    shape = (tokens, heads + 2, size) if strides == "fused" else (tokens, heads, size + 3)
    wide = torch.full(shape, torch.nan, dtype=tensor.dtype, device=tensor.device)
    return wide[:, :heads, :size].copy_(tensor)
