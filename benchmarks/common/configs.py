"""Configs that the generated modules can choose, and configs that a user names."""

from collections.abc import Sequence

import torch

from attn_kernels import Config, Lengths
from attn_kernels.choose.choices import choices_for, configs_of
from attn_kernels.kernels.config_check import check_config
from attn_kernels.measure.batches import Batch
from generated import unified_attention


def all_generated() -> list[Config]:
    """Return every config of this vendor's generated modules and of the default one, sorted."""
    vendor = "amd" if torch.version.hip else "nvidia"
    modules = [
        module for key, module in unified_attention.MODULES.items() if key.startswith((vendor, "default"))
    ]
    return sorted({config for module in modules for config in configs_of(module)}, key=str)


def chosen(batch: Batch, device: torch.device) -> Config:
    """Return the config that the device's generated module chooses for a batch."""
    return choices_for(batch.model, device).config(Lengths.of(batch.query_lens, batch.context_lens))


def parse_configs(texts: Sequence[str]) -> tuple[Config, ...]:
    """Read configs such as `segmented_M16_T64_N16_W4_S3`; raises ValueError on an impossible one."""
    configs = tuple(Config.parse(text) for text in texts)
    for config in configs:
        check_config(config)
    return configs
