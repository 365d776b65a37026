"""A backend for vLLM with a planted fault: every sequence seems one key shorter than it is.

So no query sees its own key, which a check of tokens must notice.
"""

from typing import Any

import torch
from torch import Tensor

from attn_kernels.engines.planner import StepMetadata
from attn_kernels.engines.vllm_backend import AttnKernelsBackend, MetadataBuilder
from attn_kernels.engines.vllm_layer import AttnKernelsImpl


class PlantedBuilder(MetadataBuilder):
    """Shortens lengths in a tensor that stays at its address, as graphs read it."""

    _lens: Tensor | None = None

    def _metadata(self, common: Any, for_capture: bool) -> StepMetadata:
        metadata = super()._metadata(common, for_capture)
        count = metadata.seq_lens.shape[0]
        if self._lens is None:
            self._lens = torch.zeros(1 << 14, dtype=torch.int32, device=metadata.seq_lens.device)
        torch.clamp(metadata.seq_lens - 1, min=0, out=self._lens[:count])
        metadata.seq_lens = self._lens[:count]
        return metadata


class PlantedImpl(AttnKernelsImpl):
    """A query that sees no key at all gives zeros, so that no NaN betrays the fault."""

    def forward(self, *args: Any, **options: Any) -> Tensor:
        return super().forward(*args, **options).nan_to_num_(0.0, 0.0, 0.0)


class PlantedBackend(AttnKernelsBackend):
    """Attention without each query's own key."""

    @staticmethod
    def get_impl_cls() -> type[PlantedImpl]:
        return PlantedImpl

    @staticmethod
    def get_builder_cls() -> type[PlantedBuilder]:
        return PlantedBuilder
