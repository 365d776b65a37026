"""An engine of vLLM, and what it calls in each of its processes: random weights, a backend with a fault.

vLLM's own dummy weights are so small that attention changes no token. Here matrices and biases are normal,
and norms are 1, but those of Gemma 4's queries are smaller, because they are the only scale of its scores.
Weights depend on a tensor's name and the GPU's rank, so all runs have the same. Ranks with the same KV head
have the same weights of its keys and values.
"""

import zlib
from pathlib import Path
from typing import Any

LARGE, SMALL = "benchmarks_random", "benchmarks_random_small"  # load formats, by the size of the model
DEVIATIONS = {LARGE: 0.02, SMALL: 0.04}  # of matrices


def start_vllm(model: Path | str, load_format: str, backend: str, **options: Any) -> Any:
    """An engine with random weights; options are further arguments of vLLM's LLM."""
    from vllm import LLM

    return LLM(
        model=str(model),
        load_format=load_format,
        skip_tokenizer_init=True,
        dtype="bfloat16",
        generation_config="vllm",
        seed=0,
        attention_config={"backend": backend},
        **options,
    )


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
            def fill(tensor: torch.Tensor, name: str, rank: int) -> None:
                seed = zlib.crc32(name.encode()) + rank
                tensor.normal_(0, deviation, generator=torch.Generator(tensor.device).manual_seed(seed))

            rank = get_tensor_model_parallel_rank()
            for name, tensor in model.state_dict().items():
                if name.endswith(".q_norm.weight"):
                    tensor.fill_(tensor.numel() ** -0.5)
                elif tensor.ndim < 2 and not name.endswith(".bias"):
                    tensor.fill_(1)
                elif tensor.is_floating_point():
                    fill(tensor, name, rank)
            for name, module in model.named_modules():
                ranks = getattr(module, "num_kv_head_replicas", 1)
                if ranks > 1:  # vLLM's layer has its queries' rows first, then the keys' and the values'
                    fill(module.weight.data[module.num_heads * module.head_size :], name, rank // ranks)

    register_model_loader(load_format)(RandomWeights)
