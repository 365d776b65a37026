"""The configs that the generated modules can choose."""

import torch

from attn_kernels import Config
from attn_kernels.choose.heuristic import choose_for_device, configs_of
from attn_kernels.core.config import complete
from attn_kernels.measure.batches import Batch
from generated import unified_attention


def vendor() -> str:
    """`amd` or `nvidia`, as PyTorch was built."""
    return "amd" if torch.version.hip else "nvidia"


def distinct() -> list[Config]:
    """Every config that a generated module of this vendor or the default one can choose, sorted."""
    modules = [
        module for key, module in unified_attention.MODULES.items() if key.startswith((vendor(), "default"))
    ]
    return sorted({config for module in modules for config in configs_of(module)}, key=str)


def chosen(batch: Batch, device: torch.device) -> Config:
    """What the generated module of this device chooses for a batch."""
    choose = choose_for_device(device)
    return complete(choose(**batch.features))
