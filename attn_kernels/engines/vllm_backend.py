"""The backend that vLLM finds under the name ``CUSTOM``: what it supports, and its builder and layers."""

from typing import Any, ClassVar

import torch
from vllm.platforms import current_platform
from vllm.v1.attention.backend import AttentionBackend, MultipleOf

from attn_kernels.core.checks import DTYPES
from attn_kernels.engines.vllm_builder import MetadataBuilder
from attn_kernels.engines.vllm_layer import AttnKernelsImpl
from attn_kernels.engines.vllm_supported import (
    CACHE_DTYPES,
    MIN_CAPABILITY,
    cache_dtype_fits,
    head_size_fits,
    refusals,
)


class AttnKernelsBackend(AttentionBackend):  # type: ignore[misc, unused-ignore]
    """Causal self-attention over paged caches; see docs/vllm.md."""

    supported_dtypes: ClassVar[list[torch.dtype]] = list(DTYPES)
    supported_kv_cache_dtypes: ClassVar[list[str]] = list(CACHE_DTYPES)
    # One operator a layer instead of two: vLLM runs neither inside compiled pieces.
    forward_includes_kv_cache_update: bool = True

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"  # vLLM looks this name up among its own

    @staticmethod
    def get_impl_cls() -> type[AttnKernelsImpl]:
        return AttnKernelsImpl

    @staticmethod
    def get_builder_cls() -> type[MetadataBuilder]:
        return MetadataBuilder

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec: Any = None) -> list[Any]:
        return [MultipleOf(16)]

    @staticmethod
    def get_kv_cache_shape(
        num_blocks: int, block_size: int, num_kv_heads: int, head_size: int, cache_dtype_str: str = "auto"
    ) -> tuple[int, ...]:
        """Return the shape of a layer's cache; later versions of vLLM have a shape of their own."""
        return num_blocks, 2, block_size, num_kv_heads, head_size

    @staticmethod
    def get_kv_cache_stride_order(include_num_layers_dimension: bool = False) -> tuple[int, ...]:
        """Return the order of the dimensions in memory, blocks first, as vLLM's own backends do."""
        from vllm.v1.attention.backends.utils import get_kv_cache_layout

        heads_first = get_kv_cache_layout() == "HND"
        if include_num_layers_dimension:
            return (1, 4, 0, 2, 3, 5) if heads_first else (1, 0, 2, 3, 4, 5)
        return (0, 1, 3, 2, 4) if heads_first else (0, 1, 2, 3, 4)

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        return head_size_fits(head_size)

    @classmethod
    def supports_kv_cache_dtype(cls, kv_cache_dtype: Any) -> bool:
        return cache_dtype_fits(kv_cache_dtype, current_platform.fp8_dtype())

    @classmethod
    def supports_compute_capability(cls, capability: Any) -> bool:
        return (capability.major, capability.minor) >= MIN_CAPABILITY

    @classmethod
    def supports_sink(cls) -> bool:
        return True

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True

    @classmethod
    def supports_device_cpu_query_lens_mismatch(cls) -> bool:
        return False  # plans rely on the host's longest query

    @classmethod
    def validate_configuration(cls, *args: Any, **given: Any) -> list[str]:
        """Return a line for each thing that is not supported; none if all is."""
        return refusals(super().validate_configuration(*args, **given), given)
