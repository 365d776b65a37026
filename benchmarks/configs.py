"""The configs that the generated modules can choose."""

import torch
from triton.runtime.errors import OutOfResources

from attn_kernels import Config
from attn_kernels.choose import choose_for_device, configs_of
from attn_kernels.config import complete
from benchmarks.batches import Batch
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
    return complete(
        choose(
            num_seqs=batch.num_seqs,
            num_query_tokens=batch.num_query_tokens,
            num_kv_tokens=batch.num_kv_tokens,
            max_query_len=batch.max_query_len,
            max_seq_len=batch.max_seq_len,
            num_query_heads=batch.layout.num_query_heads,
            num_kv_heads=batch.layout.num_kv_heads,
            head_size=batch.layout.head_size,
            block_size=batch.block_size,
        )
    )


def exceeds_device(error: BaseException) -> bool:
    """Whether a launch failed because the device lacks shared memory or registers for the config."""
    return isinstance(error, OutOfResources)
