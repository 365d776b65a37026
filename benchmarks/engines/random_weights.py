"""A plugin of vLLM: weights with which tokens depend on attention.

vLLM's own dummy weights are so small that attention changes no token. Here matrices are normal, and norms are
1. They depend on a tensor's name and the GPU's rank, so all runs have the same.
"""

import zlib
from typing import Any

LOAD_FORMAT = "benchmarks_random"
DEVIATION = 0.02  # standard deviation of the matrices


def register() -> None:
    """Register the loader; vLLM calls this in each of its processes, maybe twice."""
    register_loader(LOAD_FORMAT, DEVIATION)


def register_loader(load_format: str, deviation: float) -> None:
    """Give vLLM a loader of weights with this standard deviation."""
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
