"""What the device reaches: copies and matrix products."""

import torch

from attn_kernels.measure.roofline import Ceilings
from attn_kernels.measure.timing import Timing, prepare


def measure_ceilings(device: torch.device, repeats: int = 10) -> Ceilings:
    """Bandwidth of an elementwise kernel (1 GiB read, 1 GiB written) and bf16 matmul rate (8192 cubed)."""
    real = device.type == "cuda"
    source = torch.empty(1 << (29 if real else 16), dtype=torch.bfloat16, device=device).normal_()
    target = torch.empty_like(source)
    # Not copy_: a graph turns that into a memcpy node, which is slower than a kernel that reads and writes.
    copy = Timing.of(prepare([lambda: void(torch.neg(source, out=target))], device).sample(repeats))
    size = 8192 if real else 64
    a, b = (torch.empty(size, size, dtype=torch.bfloat16, device=device).normal_() for _ in range(2))
    c = torch.empty_like(a)
    matmul = Timing.of(prepare([lambda: void(torch.matmul(a, b, out=c))], device).sample(repeats))
    return Ceilings(
        bytes_per_s=2 * source.nbytes / copy.median_us * 1e6,
        flops_per_s=2 * size**3 / matmul.median_us * 1e6,
    )


def void(_: object) -> None:
    """Drop a result, so that a lambda is a `Launch`."""
