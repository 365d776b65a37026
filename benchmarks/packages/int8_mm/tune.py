"""torchao's scaled int8 product."""

import torch
import torchao.prototype.quantized_training.int8_mm as package

from benchmarks.packages.models import tuned
from triton_tune import Tuning


def arguments(M, N, K):
    a = torch.randint(-128, 128, (M, K), dtype=torch.int8)
    b = torch.randint(-128, 128, (N, K), dtype=torch.int8).t()  # a layer's weight, as the package passes it
    return a, b, *(torch.rand(sizes, dtype=torch.bfloat16) / 100 for sizes in ((M, 1), (1, N)))


TUNING = Tuning(
    kernel=package._scaled_int8_mm_kernel,
    name="int8_mm",
    call=package.scaled_int8_mm_cuda,
    arguments=arguments,
    **tuned("int8_mm"),
)
