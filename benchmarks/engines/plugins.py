"""Plugins of vLLM, which calls them in each of its processes: random weights, and a backend with a fault.

vLLM's own dummy weights are so small that attention changes no token. Here matrices are normal, and norms are
1. They depend on a tensor's name and the GPU's rank, so all runs have the same.
"""

import zlib
from typing import Any

LARGE, SMALL = "benchmarks_random", "benchmarks_random_small"  # load formats, by the size of the model
DEVIATIONS = {LARGE: 0.02, SMALL: 0.04}  # of matrices


def register_planted_fault() -> None:
    """Register a backend with which no query sees its own key as ``CUSTOM``."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CUSTOM, "benchmarks.engines.planted_fault.PlantedBackend")


def register_weights() -> None:
    """Register the loaders; may be called again."""
    for load_format, deviation in DEVIATIONS.items():
        register_loader(load_format, deviation)


def register_loader(load_format: str, deviation: float) -> None:
    import torch
    from vllm.distributed import get_tensor_model_parallel_rank
    from vllm.model_executor.model_loader import register_model_loader
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    class RandomWeights(BaseModelLoader):  # type: ignore[misc, unused-ignore]
        def download_model(self, model_config: Any) -> None:
            pass

        def load_weights(self, model: Any, model_config: Any) -> None:
            for name, tensor in model.state_dict().items():
                if tensor.ndim < 2:
                    tensor.fill_(1)
                elif tensor.is_floating_point():
                    seed = zlib.crc32(name.encode()) + get_tensor_model_parallel_rank()
                    tensor.normal_(0, deviation, generator=torch.Generator(tensor.device).manual_seed(seed))

    register_model_loader(load_format)(RandomWeights)
