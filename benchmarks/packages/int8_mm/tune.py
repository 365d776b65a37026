"""What is tuned for torchao's scaled int8 product: weights of models, any number of tokens."""

import os

import torch
import torchao.prototype.quantized_training.int8_mm as package

from triton_tune import Tuning

TINY = os.environ.get("TRITON_INTERPRET") == "1"
# (N, K) of weights; the models of untuned.py are not among them.
MATRICES = [
    *((4096, 2304), (2304, 2048), (18432, 2304), (2304, 9216)),  # Gemma 2 2B
    *((8192, 3584), (3584, 4096), (28672, 3584), (3584, 14336)),  # Gemma 2 9B
    *((8192, 5376), (43008, 5376), (5376, 21504)),  # Gemma 3 27B
    *((9216, 3072), (3072, 3072), (16384, 3072), (3072, 8192)),  # Phi-3 mini
    *((7680, 5120), (35840, 5120), (5120, 17920)),  # Phi-4
    *((5120, 2880), (2880, 4096)),  # gpt-oss 20B
    *((1600, 960), (5120, 960), (960, 2560)),  # SmolLM2 360M
    *((4672, 4544), (18176, 4544), (4544, 18176)),  # Falcon 7B
    *((7168, 6144), (24576, 6144), (6144, 24576)),  # StarCoder2 15B
    *((8192, 7168), (40960, 7168), (7168, 20480)),  # Yi 34B
    *((4800, 1600), (6400, 1600), (1600, 6400)),  # GPT-2 XL
]


def arguments(M, N, K):
    def scale(*sizes):
        return torch.rand(sizes, dtype=torch.bfloat16) / 100

    a = torch.randint(-128, 128, (M, K), dtype=torch.int8)
    b = torch.randint(-128, 128, (N, K), dtype=torch.int8).t()  # a layer's weight, as the package passes it
    return a, b, scale(M, 1), scale(1, N)


def reference(a, b, row_scale, col_scale):
    return (a.bfloat16() @ b.bfloat16()).float() * row_scale.float() * col_scale.float()


TUNING = Tuning(
    kernel=package._scaled_int8_mm_kernel,
    name="int8_mm",
    call=package.scaled_int8_mm_cuda,
    shapes={"M": (1, 40) if TINY else (1, 8192), ("N", "K"): [(48, 32), (32, 80)] if TINY else MATRICES},
    num_shapes=4 if TINY else 260,
    arguments=arguments,
    reference=reference,
)
