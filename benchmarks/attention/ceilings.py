"""The bandwidth and the matmul rate that a device reaches."""

import torch

from attn_kernels.measure.roofline import Ceilings
from attn_kernels.measure.timing import Launch, Timing, prepare


def measure_ceilings(device: torch.device) -> Ceilings:
    """Measure an elementwise kernel (1 GiB read and written each) and a bf16 product of 8192 x 8192."""
    on_gpu = device.type == "cuda"

    def normal(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16, device=device).normal_()

    def median_us(launch: Launch) -> float:
        return Timing.of(prepare([launch], device).sample(10)).median_us

    source = normal(1 << (29 if on_gpu else 16))
    target = torch.empty_like(source)

    def copy() -> None:
        # In a graph copy_ becomes a memcpy node, which is slower than a kernel that reads and writes.
        torch.neg(source, out=target)

    size = 8192 if on_gpu else 64
    a, b, c = (normal(size, size) for _ in range(3))

    def multiply() -> None:
        torch.matmul(a, b, out=c)

    copy_us = median_us(copy)
    return Ceilings(
        bytes_per_s=2 * source.nbytes / copy_us * 1e6,
        flops_per_s=2 * size**3 / median_us(multiply) * 1e6,
    )
