"""A plugin for vLLM with a planted fault: no query sees its own key. A check of tokens must notice it.

Use ``verification.vllm_planted`` where ``attn_kernels.engines.vllm`` is the plugin.
"""

BACKEND = "verification.vllm_planted_backend.PlantedBackend"


def register() -> None:
    """Register the faulty backend under vLLM's name ``CUSTOM``."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend

    register_backend(AttentionBackendEnum.CUSTOM, BACKEND)
